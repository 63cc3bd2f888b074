package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"kdapl/dat"
)

type versionCmd struct {
	JSON bool `help:"Write JSON."`
}

// versionInfo is what the command is and runs on.
type versionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	DAT      string `json:"dat"`
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

// build is the versionInfo of this program.
func build() versionInfo {
	v := versionInfo{
		Version: "(devel)",
		DAT:     fmt.Sprintf("%d.%d", dat.DAPLVersionMajor, dat.DAPLVersionMinor),
		Go:      runtime.Version(),
		OS:      runtime.GOOS,
		Arch:    runtime.GOARCH,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Revision = s.Value
		}
	}
	return v
}

// Run shows the versions.
func (c *versionCmd) Run(e env) error {
	v := build()
	if c.JSON {
		return writeJSON(e.stdout, v)
	}
	_, err := fmt.Fprintln(e.stdout, v)
	return err
}

// String is the one line that is shown.
func (v versionInfo) String() string {
	s := fmt.Sprintf("kdapl %s, DAT %s, %s, %s/%s", v.Version, v.DAT, v.Go, v.OS, v.Arch)
	if v.Revision != "" {
		s += ", revision " + v.Revision
	}
	return s
}
