package main

import (
	"testing"

	"kdapl/internal/mutation"
)

// The code still has the places that the mutations change.
func TestMutationsApply(t *testing.T) {
	root, err := mutation.Root()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, m := range mutants {
		if _, err := m.change.Apply(root); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		if names[m.name] || len(m.found) == 0 {
			t.Errorf("%s: twice, or without a test", m.name)
		}
		names[m.name] = true
	}
}

func TestPatternIsOfOneTest(t *testing.T) {
	if got := exactly("TestA/b_c"); got != "^TestA$/^b_c$" {
		t.Error(got)
	}
}
