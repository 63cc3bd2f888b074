//go:build linux

package main

import (
	"fmt"
	"strings"
)

// table prints results as they come, in Markdown.
type table struct{ lab *lab }

func newTable(l *lab) *table {
	fmt.Printf("kernel %s in %d virtual machine(s), up after %s s; %d repetition(s) of each row, each of %d rounds for rping\n\n",
		l.kernel, len(l.guests), seconds(l.boot), l.o.n, rounds)
	fmt.Println("| client -> server: what | result | passed | kernel lost a step | its wrong CRCs | FPDUs | good CRC | bad CRC | malformed | seconds |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|---|")
	return &table{l}
}

func (t *table) add(r *row, res result) {
	verdict := "pass"
	switch {
	case !res.ok():
		verdict = "FAIL: " + strings.ReplaceAll(res.why, "|", "/")
	case r.own:
		verdict = "(rate)"
	}
	f := res.found
	fmt.Printf("| %s | %s | %d/%d | %d | %d | %d | %d | %d | %d | %s |\n", r.name, verdict, res.passed, res.n, res.lost, res.wrongCRCs, f.frames, f.crcGood, f.crcBad, f.malformed+f.loose, seconds(res.took))
}

func (t *table) end() { fmt.Println() }
