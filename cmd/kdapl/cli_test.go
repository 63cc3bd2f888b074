package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kdapl/cmd/kdapl/internal/perf"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kdapl runs a command line.
func kdapl(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(args, env{ctx: ctx, stdout: &out, stderr: &errs})
	return code, out.String(), errs.String()
}

// withoutConf keeps the machine's dat.conf out of a test.
func withoutConf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dat.conf")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DAT_OVERRIDE", path)
}

func TestPerfRunsEveryOperationCompletionAndPostMode(t *testing.T) {
	withoutConf(t)
	large, depth := 1<<20, 4
	if testing.Short() {
		large, depth = 256<<10, 16
	}
	for _, op := range perf.Ops {
		for _, completion := range []string{"upcall", "dequeue", "wait"} {
			for post, list := range map[string]int{"single": 1, "list": 16, "list=5": 5} {
				if testing.Short() && post == "list" {
					continue
				}
				t.Run(fmt.Sprintf("%v/%s/%s", op, completion, post), func(t *testing.T) {
					code, out, errs := kdapl(context.Background(), "perf", "--json", "--histogram", "--op", op.String(),
						"--completion", completion, "--post", post, "--size", "8,4KiB-8KiB,"+strconv.Itoa(large), "--iters", "100")
					if code != exitOK || errs != "" {
						t.Fatalf("exit code %d, %s", code, errs)
					}
					var doc perfDoc
					dec := json.NewDecoder(strings.NewReader(out))
					dec.DisallowUnknownFields()
					if err := dec.Decode(&doc); err != nil {
						t.Fatal(err)
					}
					if doc.Adapter != "loop0" || doc.Address != "127.0.0.1" || doc.Meaning != "REMOTE_ACKED" ||
						doc.Completion.String() != completion || !doc.Verify || doc.Interrupted || doc.ClockNS <= 0 || doc.CPUs < 1 {
						t.Errorf("%+v", doc)
					}
					want := []struct{ size, depth int }{{8, 64}, {4096, 64}, {8192, 64}, {large, depth}}
					if len(doc.Results) != len(want) {
						t.Fatalf("%d rows", len(doc.Results))
					}
					for i, row := range doc.Results {
						checkRow(t, row, op, want[i].size, want[i].depth, min(list, want[i].depth))
					}
				})
			}
		}
	}
}

// checkRow checks a row of a run of 100 messages.
func checkRow(t *testing.T, row perfDocRow, op perf.Op, size, depth, list int) {
	t.Helper()
	l, r := row.Latency, row.Throughput
	if row.Op != op || row.Size != size || l == nil || r == nil {
		t.Fatalf("%+v", row)
	}
	if r.Messages != 100 || r.Depth != depth || r.List != list || r.Seconds <= 0 || r.Checked == 0 {
		t.Errorf("%d: throughput %+v", size, r)
	}
	if got := r.MessagesPerSecond * r.Seconds; got < 99.9 || got > 100.1 {
		t.Errorf("%d: rate times seconds is %v", size, got)
	}
	if got := r.BytesPerSecond / r.MessagesPerSecond; got < float64(size)*0.999 || got > float64(size)*1.001 {
		t.Errorf("%d: bytes of a message are %v", size, got)
	}
	in := []float64{0, l.Min, l.P50, l.P90, l.P99, l.P999, l.Max}
	if l.Unit != "ns" || l.Samples != 100 || l.Seconds <= 0 || l.Checked == 0 || !slices.IsSorted(in) || l.Max == 0 || l.Mean < l.Min || l.Mean > l.Max {
		t.Errorf("%d: latency %+v", size, l)
	}
	var n int64
	for i, b := range l.Histogram {
		n += b.Count
		if i > 0 && b.Limit <= l.Histogram[i-1].Limit {
			t.Errorf("%d: buckets %+v", size, l.Histogram)
		}
	}
	if n != l.Samples || l.Histogram[len(l.Histogram)-1].Limit < l.Max {
		t.Errorf("%d: buckets %+v of %d samples up to %v", size, l.Histogram, l.Samples, l.Max)
	}
}

func TestPerfWithoutOptionsMeasuresEverything(t *testing.T) {
	withoutConf(t)
	var cmd perfCmd
	if err := cmd.Size.UnmarshalText([]byte(defaultSizes)); err != nil {
		t.Fatal(err)
	}
	cmd.Op, cmd.Post.list = perf.Ops, 1
	specs, err := cmd.plan(1 << 30)
	if err != nil {
		t.Fatal(err)
	}
	var total int64
	seen := map[string]bool{}
	for _, s := range specs {
		total += int64(s.Duration)
		seen[fmt.Sprint(s.Op, s.Kind, s.Size)] = true
	}
	if len(seen) != len(specs) || len(seen) != 2*3*8 || total > int64(budget) {
		t.Errorf("%d measurements, %d different ones, of %d ns", len(specs), len(seen), total)
	}
	code, out, errs := kdapl(context.Background(), "perf", "--duration", "1ms")
	if code != exitOK || errs != "" {
		t.Fatalf("exit code %d, %s", code, errs)
	}
	for _, part := range []string{"kdapl perf: loop0", "│ send ", "│ write", "│ read ", "   8 B │", " 1 MiB │", "data: verified."} {
		if !strings.Contains(out, part) {
			t.Errorf("no %q in\n%s", part, out)
		}
	}
}

func TestPerfPlan(t *testing.T) {
	for _, c := range []struct {
		name         string
		cmd          perfCmd
		depth, list  int // of the last
		fails        string
		messageLimit uint32
	}{
		{name: "depth by window", cmd: perfCmd{Size: sizes{1 << 17}, Post: posting{1}}, depth: 32, list: 1},
		{name: "large message", cmd: perfCmd{Size: sizes{8 << 20}, Post: posting{1}}, depth: 1, list: 1},
		{name: "long list", cmd: perfCmd{Size: sizes{8}, Post: posting{100}}, depth: 100, list: 100},
		{name: "long list of large messages", cmd: perfCmd{Size: sizes{1 << 20}, Post: posting{100}}, depth: 4, list: 4},
		{name: "depth that is asked for", cmd: perfCmd{Size: sizes{1 << 20}, Post: posting{4}, Depth: 32}, depth: 32, list: 4},
		{name: "list over depth", cmd: perfCmd{Size: sizes{8}, Post: posting{4}, Depth: 3}, fails: "a list of 4 is longer than the --depth of 3"},
		{name: "message limit", cmd: perfCmd{Size: sizes{8192}, Post: posting{1}}, messageLimit: 4096, fails: "--size 8 KiB is more than the 4 KiB of the largest message"},
		{name: "memory", cmd: perfCmd{Size: sizes{1 << 20}, Post: posting{1}, Depth: 2000}, fails: "--depth 2000 of 1 MiB messages needs more than the 2 GiB"},
	} {
		if c.messageLimit == 0 {
			c.messageLimit = 1 << 30
		}
		c.cmd.Op = []perf.Op{perf.Write}
		specs, err := c.cmd.plan(c.messageLimit)
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%s: got %v", c.name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if last := specs[len(specs)-1]; last.Depth != c.depth || last.List != c.list {
			t.Errorf("%s: depth %d, list %d", c.name, last.Depth, last.List)
		}
	}
}

func TestInterruptedPerfShowsWhatItHas(t *testing.T) {
	withoutConf(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	code, out, errs := kdapl(ctx, "perf", "--size", "8")
	if code != exitFailure || !strings.Contains(out, "kdapl perf: loop0") || errs != "kdapl perf: interrupted; these are the measurements until then\n" {
		t.Errorf("exit code %d\n%s\n%s", code, out, errs)
	}
	code, out, _ = kdapl(ctx, "perf", "--size", "8", "--json")
	var doc perfDoc
	if err := json.Unmarshal([]byte(out), &doc); err != nil || code != exitFailure || !doc.Interrupted || len(doc.Results) != 0 {
		t.Errorf("exit code %d, %v\n%s", code, err, out)
	}
}

func TestWrongCommandLinesAreUsageErrors(t *testing.T) {
	withoutConf(t)
	for line, want := range map[string]string{
		"":                                         "Usage: kdapl <command>",
		"perfs":                                    "unexpected argument perfs",
		"perf --nonsense":                          "unknown flag --nonsense",
		"perf --size 3x":                           `"3x" is not a size such as 64, 4KiB or 1MiB`,
		"perf --size 1MiB-8":                       "is not 1 or more bytes, and upwards",
		"perf --size 0":                            "is not 1 or more bytes",
		"perf --size 8-":                           `"8-" is neither a size such as 64 nor a range such as 8-1MiB`,
		"perf --connect=":                          "--connect: no address and no port",
		"perf --listen=":                           "--listen: no address and no port",
		"perf --size 8/2":                          "is not a range such as 8-1MiB/4",
		"perf --size 8-64/1":                       "with a factor of 2 or more",
		"perf --op=":                               "--op names no operation",
		"perf --op fly":                            `"fly" is none of send, write, read`,
		"perf --completion later":                  `"later" is none of upcall, dequeue, wait`,
		"perf --post twice":                        `"twice" is not single, list or list=N`,
		"perf --post list=":                        `"" is not a whole number`,
		"perf --post list=0":                       "0 is less than 1",
		"perf --post list=-4":                      "-4 is less than 1",
		"perf --post list=32769":                   "32769 is more than 32768, the largest length of a list",
		"perf --post list=9999999":                 "9999999 is more than 32768, the largest length of a list",
		"perf --post list=1e3":                     `"1e3" is not a whole number`,
		"perf --depth 0":                           "--depth: 0 is less than 1",
		"perf --depth -1":                          "--depth: -1 is less than 1",
		"perf --depth 32769":                       "--depth: 32769 is more than 32768, the largest depth",
		"perf --depth 64k":                         `--depth: "64k" is not a whole number`,
		"perf --iters 5 --duration 1s":             "can't be used together",
		"perf --iters 0":                           "--iters: 0 is less than 1",
		"perf --iters -3":                          "--iters: -3 is less than 1",
		"perf --iters=-5":                          "--iters: -5 is less than 1",
		"perf --iters 1M":                          `--iters: "1M" is not a whole number`,
		"perf --iters 99999999999999999999":        "is out of any range",
		"perf --duration 0s":                       "--duration: 0s is not more than 0",
		"perf --duration 0":                        "--duration: 0 is not more than 0",
		"perf --duration -1s":                      "--duration: -1s is not more than 0",
		"perf --duration 5":                        `--duration: "5" is not a time such as 500ms or 2s`,
		"perf --duration 9999999999h":              "is not a time",
		"perf --size -8":                           `"-8" is neither a size`,
		"perf --size 2GiB":                         `"2GiB": a message has at most 1 GiB`,
		"perf --size 2147483647":                   `"2147483647": a message has at most 1 GiB`,
		"perf --size 8-2GiB":                       `"8-2GiB": a message has at most 1 GiB`,
		"perf --size 99999999999999999999":         "is out of any range",
		"perf --size 9999999TiB":                   "is out of any range",
		"perf --size 8KB":                          `"8KB" is not a size such as 64, 4KiB or 1MiB`,
		"perf --memory 0":                          "--memory: 0 is less than 1 byte",
		"perf --memory -1":                         "--memory: -1 is less than 1 byte",
		"perf --memory 1GB":                        "is not a size",
		"perf --crc maybe":                         "--crc",
		"perf --crc off":                           "loop has addr, completion and rnr-timeout",
		"perf --adapter iwarp0 --set speed=9":      `unknown option "speed"`,
		"perf --addr here":                         "--addr",
		"perf --pcap x":                            "nothing goes over a wire with loop0",
		"perf --server --connect x":                "can't be used together",
		"perf --listen :1 --connect x":             "can't be used together",
		"perf --server --size 8":                   "--size is for the client to say",
		"perf --server --no-verify":                "--verify is for the client to say",
		"perf --server --adapter loop0":            "loop0 connects end points of one process only",
		"perf --connect x --adapter loop0":         "loop0 connects end points of one process only",
		"perf --listen :99999":                     `"99999" is not a port`,
		"perf --listen here:1":                     `"here" is not an address of this host`,
		"perf --listen 127.0.0.2 --addr 127.0.0.3": "name two addresses",
		"perf --connect :":                         "is not a port",
		"perf --connect x:0":                       "names no host and port",
		"perf --connect ::1:7:":                    "an address of IPv6 with a port is [ADDR]:PORT",
		"perf --adapter nowhere":                   "PROVIDER_NOT_FOUND (NAME_NOT_REGISTERED): known adapters: iwarp0, loop0",
		"info nowhere":                             "PROVIDER_NOT_FOUND (NAME_NOT_REGISTERED): known adapters: iwarp0, loop0",
		"version --json more":                      "unexpected argument more",
		"perf --depth 2 --post list=3":             "a list of 3 is longer than the --depth of 2",
		"perf --size 1MiB --depth 32768":           "lower one of them",
	} {
		code, out, errs := kdapl(context.Background(), strings.Fields(line)...)
		if code != exitUsage || out != "" && line != "info nowhere" || !strings.Contains(errs, want) {
			t.Errorf("kdapl %s: exit code %d, %q, %q; want %q", line, code, out, errs, want)
		}
		if line != "" && !strings.Contains(errs, "--help") {
			t.Errorf("kdapl %s: %q does not say where help is", line, errs)
		}
	}
}

func TestHelpSaysWhatIsMeasured(t *testing.T) {
	for line, parts := range map[string][]string{
		"--help":         {"info", "perf", "version"},
		"perf --help":    {"half of the time", "to the completion", "byte by byte", "Before the measured time", "--[no-]verify", "--completion", "8,64,1KiB,4KiB,16KiB,64KiB,256KiB,1MiB"},
		"info --help":    {"DAT_OVERRIDE", "--json"},
		"version --help": {"--json"},
	} {
		code, out, errs := kdapl(context.Background(), strings.Fields(line)...)
		if code != exitOK || errs != "" {
			t.Errorf("kdapl %s: exit code %d, %s", line, code, errs)
		}
		out = strings.Join(strings.Fields(out), " ")
		for _, p := range parts {
			if !strings.Contains(out, p) {
				t.Errorf("kdapl %s does not say %q:\n%s", line, p, out)
			}
		}
	}
}

func TestInfoShowsRealAdapters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dat.conf")
	if err := os.WriteFile(path, []byte(
		`loop1 k2.0 threadsafe default kdapl kdapl.1.0 "loop addr=127.0.0.2" ""`+"\n"+
			`slow u2.0 nonthreadsafe default libkdapl.so.2 kdapl.1.0 "loop addr=127.0.0.3" ""`+"\n"+
			`mlx u2.0 threadsafe default libdaplofa.so.2 dapl.2.0 "mlx4_0 1" ""`+"\n"+
			"bad\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DAT_OVERRIDE", path)
	code, out, errs := kdapl(context.Background(), "info", "--json")
	if code != exitOK || !strings.Contains(errs, "dat.conf:4:4: api_version") {
		t.Errorf("exit code %d, %s", code, errs)
	}
	var docs []struct {
		Name, Error       string
		Adapter, Provider map[string]any
	}
	if err := json.Unmarshal([]byte(out), &docs); err != nil {
		t.Fatal(err)
	}
	addresses := map[string]any{}
	for _, d := range docs {
		addresses[d.Name] = d.Adapter["ia_address_ptr"]
		if (d.Error != "") != (d.Name == "mlx") {
			t.Errorf("%s: %s", d.Name, d.Error)
		}
		if d.Error == "" && d.Adapter["adapter_name"] != d.Name {
			t.Errorf("%s is called %v", d.Name, d.Adapter["adapter_name"])
		}
	}
	if want := (map[string]any{"iwarp0": "127.0.0.1", "loop0": "127.0.0.1", "loop1": "127.0.0.2", "slow": "127.0.0.3", "mlx": nil}); fmt.Sprint(addresses) != fmt.Sprint(want) {
		t.Errorf("got %v", addresses)
	}

	code, out, errs = kdapl(context.Background(), "info", "loop1", "slow")
	if code != exitOK || errs != "" || !strings.Contains(out, "127.0.0.2") || !strings.Contains(out, "127.0.0.3") || strings.Contains(out, "127.0.0.1 ") {
		t.Errorf("exit code %d, %s\n%s", code, errs, out)
	}
	code, out, errs = kdapl(context.Background(), "info", "loop1", "mlx")
	if code != exitUsage || !strings.Contains(out, "127.0.0.2") || !strings.Contains(errs, "libdaplofa.so.2 is a library for C programs") {
		t.Errorf("exit code %d, %s\n%s", code, errs, out)
	}
}

func TestVersion(t *testing.T) {
	code, out, errs := kdapl(context.Background(), "version")
	if code != exitOK || errs != "" || !strings.HasPrefix(out, "kdapl ") || !strings.Contains(out, "DAT 2.0") {
		t.Errorf("exit code %d, %s, %s", code, out, errs)
	}
	code, out, _ = kdapl(context.Background(), "version", "--json")
	var v versionInfo
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != exitOK || v != build() {
		t.Errorf("exit code %d, %v, %s", code, err, out)
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]sizes{
		"64":            {64},
		"64B":           {64},
		"4K":            {4096},
		"4KiB,1MiB,8":   {8, 4096, 1 << 20},
		"1G":            {1 << 30},
		"8-64":          {8, 16, 32, 64},
		"8-63":          {8, 16, 32},
		"1-1KiB/8":      {1, 8, 64, 512},
		"8-64/8,16,64":  {8, 16, 64},
		"1G-1073741824": {1 << 30},
		"5 KiB":         {5120},
		"1-1G/1000":     {1, 1000, 1000000, 1000000000},
	} {
		var s sizes
		if err := s.UnmarshalText([]byte(text)); err != nil || !slices.Equal(s, want) {
			t.Errorf("%s: %v, %v; want %v", text, s, err, want)
		}
	}
	for _, text := range []string{"", ",", "8,", "-8", "8-", "K", "4KB", "4kib", "4MB", "8-64-128", "2G", "2147483648", "99999999999999999999", "8-64/x", "1.5K"} {
		var s sizes
		if err := s.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q: %v", text, s)
		}
	}
}

func TestNumbersForPeople(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0.000", 0.0454: "0.045", 0.9994: "0.999", 0.9996: "1.00", 1.234: "1.23", 9.994: "9.99", 9.996: "10.0",
		99.94: "99.9", 99.96: "100", 1234.5: "1234", 1e6: "1000000",
	} {
		if got := significant(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
	for n, want := range map[uint64]string{0: "0 B", 1: "1 B", 1000: "1000 B", 1024: "1 KiB", 1536: "1536 B", 5 << 20: "5 MiB", 1 << 63: "8 EiB"} {
		if got := formatBytes(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	for n, want := range map[uint64]string{0: "0", 999: "999", 1000: "1,000", 123456789: "123,456,789"} {
		if got := grouped(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

func TestBarsGrowWithTheirShare(t *testing.T) {
	for _, c := range []struct {
		n, most int64
		want    string
	}{
		{0, 10, ""}, {1, 1000000, "▏"}, {10, 10, strings.Repeat("█", barWidth)}, {1, 80, "▌"}, {3, 160, "▊"}, {5, 10, strings.Repeat("█", barWidth/2)},
	} {
		if got := bar(c.n, c.most); got != c.want {
			t.Errorf("%d of %d: %q, want %q", c.n, c.most, got, c.want)
		}
	}
}
