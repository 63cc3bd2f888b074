package main

import (
	"fmt"

	"kdapl/cmd/kdapl/internal/perf"

	"github.com/schollz/progressbar/v3"
)

// progress shows on a terminal what is being measured.
type progress struct {
	bar *progressbar.ProgressBar
	at  int
}

func newProgress(e env, steps int) *progress {
	return &progress{bar: progressbar.NewOptions(steps,
		progressbar.OptionSetWriter(e.stderr),
		progressbar.OptionSetVisibility(e.progress),
		progressbar.OptionSetWidth(30),
		progressbar.OptionSetPredictTime(false),
		progressbar.OptionSetElapsedTime(false),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionSetTheme(progressbar.Theme{Saucer: "█", SaucerPadding: "░", BarStart: "", BarEnd: ""}),
	)}
}

// next says that a measurement begins. An error of the terminal is no reason to stop.
func (p *progress) next(s perf.Spec) {
	p.bar.Describe(fmt.Sprintf("%-5v %8s %-10v", s.Op, formatBytes(uint64(s.Size)), s.Kind))
	_ = p.bar.Set(p.at)
	p.at++
}

// end clears the line.
func (p *progress) end() { _ = p.bar.Finish() }
