package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"kdapl/cmd/kdapl/internal/perf"
)

// sizes is a list of message sizes, as in "8,64,1KiB-64KiB,1MiB".
type sizes []int

// defaultSizes is where the costs of different layers show: a word, a cache line, a page, and
// what fits into which cache.
const defaultSizes = "8,64,1KiB,4KiB,16KiB,64KiB,256KiB,1MiB"

// UnmarshalText reads sizes and ranges, separated by commas. A range doubles from its first size to
// its last; /N makes that a factor of N.
func (s *sizes) UnmarshalText(text []byte) error {
	var all sizes
	for part := range strings.SplitSeq(string(text), ",") {
		span, by, stepped := strings.Cut(part, "/")
		low, high, ranged := strings.Cut(span, "-")
		if ranged && (low == "" || high == "") {
			return fmt.Errorf("%q is neither a size such as 64 nor a range such as 8-1MiB", part)
		}
		from, err := parseBytes(low)
		to := from
		if err == nil && ranged {
			to, err = parseBytes(high)
		}
		if err != nil {
			return err
		}
		factor := 2
		if stepped {
			factor, err = strconv.Atoi(by)
			if err != nil || factor < 2 || !ranged {
				return fmt.Errorf("%q is not a range such as 8-1MiB/4, with a factor of 2 or more", part)
			}
		}
		switch {
		case from < 1 || from > to:
			return fmt.Errorf("%q is not 1 or more bytes, and upwards", part)
		case to > perf.MaxSize:
			return fmt.Errorf("%q: a message has at most %s", part, formatBytes(perf.MaxSize))
		}
		for n := int(from); n <= int(to); n *= factor {
			all = append(all, n)
			if n > int(to)/factor {
				break
			}
		}
	}
	slices.Sort(all)
	*s = slices.Compact(all)
	return nil
}

// posting is how requests are posted: one by one, or in lists of so many.
type posting struct{ list int }

// defaultList is the length of lists if none is said.
const defaultList = 16

// UnmarshalText reads "single", "list" or "list=N".
func (p *posting) UnmarshalText(text []byte) error {
	switch mode, n, has := strings.Cut(string(text), "="); {
	case mode == "single" && !has:
		p.list = 1
	case mode == "list" && !has:
		p.list = defaultList
	case mode == "list":
		return within(&p.list, n, perf.MaxDepth, "length of a list")
	default:
		return fmt.Errorf("%q is not single, list or list=N", text)
	}
	return nil
}

// whole reads a whole number of 1 or more.
func whole(to *int, text string) error {
	n, err := strconv.Atoi(text)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("%s is out of any range", text)
	case err != nil:
		return fmt.Errorf("%q is not a whole number", text)
	case n < 1:
		return fmt.Errorf("%s is less than 1", text)
	}
	*to = n
	return nil
}

// within reads a whole number from 1 to a limit.
func within(to *int, text string, limit int, what string) error {
	var n int
	if err := whole(&n, text); err != nil {
		return err
	}
	if n > limit {
		return fmt.Errorf("%d is more than %d, the largest %s", n, limit, what)
	}
	*to = n
	return nil
}

// depth is a number of messages under way; 0 where none is given.
type depth int

// UnmarshalText reads a depth.
func (d *depth) UnmarshalText(text []byte) error {
	return within((*int)(d), string(text), perf.MaxDepth, "depth")
}

// iterations is a number of messages; 0 where none is given.
type iterations int

// UnmarshalText reads a number.
func (n *iterations) UnmarshalText(text []byte) error { return whole((*int)(n), string(text)) }

// span is a time; 0 where none is given.
type span time.Duration

// UnmarshalText reads a time with its unit.
func (d *span) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	switch {
	case err != nil:
		return fmt.Errorf("%q is not a time such as 500ms or 2s", text)
	case v <= 0:
		return fmt.Errorf("%s is not more than 0", text)
	}
	*d = span(v)
	return nil
}

// volume is an amount of memory.
type volume int64

// UnmarshalText reads a size.
func (v *volume) UnmarshalText(text []byte) error {
	n, err := parseBytes(string(text))
	if err == nil && n < 1 {
		err = fmt.Errorf("%s is less than 1 byte", text)
	}
	*v = volume(n)
	return err
}
