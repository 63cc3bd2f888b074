package main

import "testing"

func TestHello(t *testing.T) {
	for _, adapter := range []string{"loop0", "iwarp0"} {
		if err := run(adapter); err != nil {
			t.Errorf("%s: %v", adapter, err)
		}
	}
}
