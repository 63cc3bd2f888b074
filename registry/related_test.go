package registry

import (
	"path/filepath"
	"testing"

	"kdapl/dat"
)

func TestProvidersAreNotHARelated(t *testing.T) {
	s := withConf(t, line("other", "k2.0", "threadsafe", "loop"),
		`foreign u2.0 threadsafe default libdaplofa.so.2 dapl.2.0 "mlx5_0 1" ""`)
	for _, c := range []struct {
		a, b string
		want dat.HARelationship
	}{
		{"loop0", "other", dat.HAFalse}, {"loop0", "loop0", dat.HAFalse}, {"loop0", "foreign", dat.HAUnknown}, {"foreign", "other", dat.HAUnknown},
	} {
		if got, err := s.related(c.a, c.b); err != nil || got != c.want {
			t.Errorf("%s and %s: %v, %v; want %v", c.a, c.b, got, err, c.want)
		}
	}
	for _, pair := range [][2]string{{"loop0", "nobody"}, {"nobody", "loop0"}, {"", "loop0"}} {
		_, err := s.related(pair[0], pair[1])
		wantFailure(t, err, dat.NameNotRegistered)
	}
	t.Setenv("DAT_OVERRIDE", filepath.Join(t.TempDir(), "missing"))
	if got, err := Related("loop0", "loop0"); err != nil || got != dat.HAFalse {
		t.Error(got, err)
	}
}
