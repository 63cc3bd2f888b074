package main

import (
	"slices"
	"testing"
)

func TestShortCasesAreCases(t *testing.T) {
	for _, name := range shortCases {
		if !slices.ContainsFunc(cases, func(c testCase) bool { return c.name == name }) {
			t.Errorf("there is no case %q", name)
		}
	}
}
