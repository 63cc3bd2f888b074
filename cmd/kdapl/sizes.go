package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
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
		if from < 1 || from > to {
			return fmt.Errorf("%q is not 1 or more bytes, and upwards", part)
		}
		for n := from; n <= to; n *= factor {
			all = append(all, n)
			if n > to/factor {
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
		v, err := strconv.Atoi(n)
		if err != nil || v < 1 {
			return fmt.Errorf("a list has 1 or more requests, not %q", n)
		}
		p.list = v
	default:
		return fmt.Errorf("%q is not single, list or list=N", text)
	}
	return nil
}
