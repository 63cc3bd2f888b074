// Package loop is an adapter without hardware or network: it connects queue pairs of one
// process and moves data by memory copy.
package loop
