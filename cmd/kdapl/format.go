package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"strconv"
	"strings"
)

// writeJSON writes a document that people can read too.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

var byteUnits = []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}

// formatBytes writes a size with the largest unit that makes it a whole number.
func formatBytes(n uint64) string {
	u := 0
	if n > 0 {
		u = min(bits.TrailingZeros64(n)/10, len(byteUnits)-1)
	}
	return strconv.FormatUint(n>>(10*u), 10) + " " + byteUnits[u]
}

// parseBytes reads a size: a number and, if not bytes, a unit that is a power of 1024: K, M, G or T,
// with or without iB.
func parseBytes(s string) (int64, error) {
	digits := strings.TrimRight(s, "BKMGTi ")
	unit := strings.TrimSpace(s[len(digits):])
	shift := -1
	for i, u := range byteUnits[:5] {
		if unit == u || i > 0 && unit == u[:1] || i == 0 && unit == "" {
			shift = 10 * i
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	switch {
	case shift >= 0 && (errors.Is(err, strconv.ErrRange) || err == nil && n<<shift>>shift != n):
		return 0, fmt.Errorf("%q is out of any range", s)
	case err != nil || shift < 0:
		return 0, fmt.Errorf("%q is not a size such as 64, 4KiB or 1MiB", s)
	}
	return n << shift, nil
}

// significant writes a number that is not negative with three significant digits or more, and at most
// three decimals.
func significant(v float64) string {
	decimals := 0
	switch {
	case v < 0.9995:
		decimals = 3
	case v < 9.995:
		decimals = 2
	case v < 99.95:
		decimals = 1
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

// grouped writes a whole number with its digits in groups of three.
func grouped[T ~int | ~uint32 | ~uint64](n T) string {
	digits := strconv.FormatUint(uint64(n), 10)
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}

// count writes a number of things.
func count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return grouped(n) + " " + thing
}
