package registry

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"kdapl/dat"
)

// Entry is a line of a dat.conf file. Strings hold no control characters; a tab is allowed.
type Entry struct {
	// Name is the name to open (ia_name), 1 to 255 bytes. Upper and lower case differ.
	Name string
	// API is 'k' for kDAPL or 'u' for uDAPL; Major and Minor are DAT's version. Together they
	// are the api_version.
	API          byte
	Major, Minor uint32
	// ThreadSafe is "threadsafe" or "nonthreadsafe".
	ThreadSafe bool
	// Default is "default" or "nondefault". It has no effect.
	Default bool
	// LibPath is the provider's library (lib_path), 1 byte or more.
	LibPath string
	// ProviderID, ProviderMajor and ProviderMinor are the provider_version, as in "kdapl.1.0".
	ProviderID                   string
	ProviderMajor, ProviderMinor uint32
	// IAParams are for the provider (ia_params).
	IAParams string
	// PlatformParams are for the operating system (platform_params).
	PlatformParams string
}

// Ours reports whether the entry's library is this module, so that [Open] can open it.
func (e Entry) Ours() bool {
	base := e.LibPath[strings.LastIndexAny(e.LibPath, `/\`)+1:]
	if e.LibPath == "kdapl" {
		return true
	}
	suffix, ok := strings.CutPrefix(base, "libkdapl.")
	if !ok {
		return false
	}
	return suffix == "so" || strings.HasPrefix(suffix, "so.") || suffix == "dylib" || strings.HasSuffix(suffix, ".dylib") || suffix == "dll"
}

// MarshalText returns the entry as a line of dat.conf, without the end of the line. It fails for
// entries that no line can express.
func (e Entry) MarshalText() ([]byte, error) {
	name, err := e.field(fieldName, e.Name)
	lib, err2 := e.field(fieldLibPath, e.LibPath)
	id, err3 := e.field(fieldProviderVersion, fmt.Sprintf("%s.%d.%d", e.ProviderID, e.ProviderMajor, e.ProviderMinor))
	ia, err4 := e.field(fieldIAParams, e.IAParams)
	platform, err5 := e.field(fieldPlatformParams, e.PlatformParams)
	if err := cmp.Or(err, err2, err3, err4, err5); err != nil {
		return nil, err
	}
	switch {
	case len(e.Name) >= dat.NameMaxLength || e.Name == "":
		return nil, e.unfit(fieldName, fmt.Sprintf("must have 1 to %d bytes", dat.NameMaxLength-1))
	case e.API != 'k' && e.API != 'u':
		return nil, e.unfit(fieldAPIVersion, "must be of API k or u")
	case e.LibPath == "":
		return nil, e.unfit(fieldLibPath, "must not be empty")
	case e.ProviderID == "":
		return nil, e.unfit(fieldProviderVersion, "must begin with the provider's id")
	}
	safety, def := "threadsafe", "default"
	if !e.ThreadSafe {
		safety = "nonthreadsafe"
	}
	if !e.Default {
		def = "nondefault"
	}
	return fmt.Appendf(nil, "%s %c%d.%d %s %s %s %s %s %s",
		name, e.API, e.Major, e.Minor, safety, def, lib, id, ia, platform), nil
}

// field returns a field as it is written: quoted if it must be.
func (e Entry) field(field, s string) (string, error) {
	if i := strings.IndexFunc(s, unprintable); i >= 0 {
		return "", e.unfit(field, fmt.Sprintf("holds the control character %q", s[i]))
	}
	if field != fieldIAParams && field != fieldPlatformParams && s != "" && s[0] != '#' && !strings.ContainsAny(s, "\" \t") {
		return s, nil
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`, nil
}

func (e Entry) unfit(field, why string) error {
	return fmt.Errorf("registry: dat.conf entry %q: %s %s", e.Name, field, why)
}

// WriteConf writes the entries as lines of dat.conf. Nothing is written if one of them cannot be.
func WriteConf(w io.Writer, entries ...Entry) error {
	var all []byte
	for _, e := range entries {
		line, err := e.MarshalText()
		if err != nil {
			return err
		}
		all = append(append(all, line...), '\n')
	}
	_, err := w.Write(all)
	return err
}
