//go:build linux

// Command agent runs in the guest of interop/siw and executes what the host asks for.
package main

import (
	"fmt"
	"net"
	"os"

	"kdapl/interop/siw/remote"
)

func main() {
	l, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
	for {
		if c, err := l.Accept(); err == nil {
			go remote.Serve(c)
		}
	}
}
