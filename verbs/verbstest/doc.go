// Package verbstest is a conformance suite for devices of package verbs: one named subtest
// for each rule of the contract.
package verbstest
