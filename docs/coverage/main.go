// Command coverage makes docs/coverage.md: every call, event, status, state and return code of DAT, what it is in
// Go, and the test that shows it. Run it in the module: go run ./docs/coverage.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	text, holes, err := generate(root)
	if err != nil {
		return err
	}
	for _, h := range holes {
		fmt.Fprintln(os.Stderr, "hole:", h)
	}
	if len(holes) > 0 {
		return fmt.Errorf("%d holes; the page was not written", len(holes))
	}
	return os.WriteFile(filepath.Join(root, pagePath), []byte(text), 0o644)
}

// generate makes the page of the module at root.
func generate(root string) (text string, holes []string, err error) {
	src, err := load(root)
	if err != nil {
		return "", nil, err
	}
	old, err := os.ReadFile(filepath.Join(root, pagePath))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", nil, err
	}
	// A row's tests stay when the page is made again: so it is made until it stays.
	text = string(old)
	for {
		p := newPage(src, text)
		if err := p.make(); err != nil {
			return "", nil, err
		}
		if p.out.String() == text || len(p.holes) > 0 {
			return p.out.String(), p.holes, nil
		}
		text = p.out.String()
	}
}

// moduleRoot is the directory of the module that the command runs in.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fmt.Errorf("no go.mod above the working directory")
		}
		dir = up
	}
}
