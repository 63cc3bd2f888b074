package registry

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"kdapl/dat"
	"kdapl/verbs"
)

// Factory makes the device of a provider. It is called when the provider is first opened, and again if
// the device it made has gone.
type Factory func() (verbs.Device, error)

// Options are what OpenWith may ask for beside the name. The zero value is what Open asks for.
type Options struct {
	// Config goes to dat.Open; an empty Name in it becomes the name that is opened.
	Config dat.Config
	// Major and Minor are the version of DAT that the program is written for; with a Major of 0
	// they are those of package dat. The major version must be the provider's, the
	// minor version at most the provider's.
	Major, Minor uint32
	// NonThreadSafe asks for a provider that is not thread-safe, which differs from not minding: a
	// thread-safe one does not fit. The adapters of this module are thread-safe in either case; a
	// line of dat.conf may say otherwise for programs that ask so.
	NonThreadSafe bool
	// Settings go before those of the provider's ia_params, by key, as in {"crc": "off"}; see the
	// package document. IAs that are opened with the same name and the same settings share a device. A
	// provider of Register takes none.
	Settings map[string]string
}

// Info describes a provider (DAT_PROVIDER_INFO), and where the registry has it from.
type Info struct {
	// Name is the name to open.
	Name string
	// Major and Minor are the version of DAT.
	Major, Minor uint32
	// ThreadSafe: Open finds it; otherwise only OpenWith with NonThreadSafe.
	ThreadSafe bool
	// Source is "built in", "registered", or the file and line, as in "/etc/dat.conf:3".
	Source string
	// Library is the lib_path of a line of dat.conf. Params are its ia_params, or those of a name that is
	// built in.
	Library, Params string
	// Openable: the adapter is one of this module, or was registered by the program.
	Openable bool
	// Open counts the IAs of the provider that are open.
	Open int
}

// provider is what makes IAs of a name.
type provider struct {
	info Info
	// make makes the device; nil for a library that is not ours.
	make func(settings map[string]string) (verbs.Device, error)
	set  *providers

	making  sync.Mutex              // serializes make; never taken with set.mu held
	devices map[string]verbs.Device // by the settings that they were made with; under making

	// Under set.mu:
	open    int
	removed bool
}

// providers is a registry.
type providers struct {
	// conf tells the file to read, and whether it must be there.
	conf func() (path string, required bool)

	mu      sync.Mutex
	dynamic []*provider          // built in or registered
	static  map[origin]*provider // of lines that were seen so far
}

// origin is what makes lines the same provider.
type origin struct {
	file string
	Entry
}

func newProviders(conf func() (string, bool)) *providers {
	s := &providers{conf: conf, static: map[origin]*provider{}}
	for name, params := range builtin {
		p := s.ours(name, "built in", func(settings map[string]string) (verbs.Device, error) { return deviceOf(name, params, settings) })
		p.info.Params = params
		s.dynamic = append(s.dynamic, p)
	}
	slices.SortFunc(s.dynamic, func(a, b *provider) int { return strings.Compare(a.info.Name, b.info.Name) })
	return s
}

// ours is a provider that is not from a file: it is of package dat, whose version and thread safety
// it has.
func (s *providers) ours(name, source string, make func(map[string]string) (verbs.Device, error)) *provider {
	return &provider{set: s, make: make, info: Info{
		Name: name, Major: dat.DAPLVersionMajor, Minor: dat.DAPLVersionMinor, ThreadSafe: true,
		Source: source, Openable: true,
	}}
}

var std = newProviders(confPath)

// confPath is the file that the environment names, or the system's.
func confPath() (path string, required bool) {
	if path = os.Getenv("DAT_OVERRIDE"); path != "" {
		return path, true
	}
	if runtime.GOOS == "windows" {
		return "", false
	}
	return "/etc/dat.conf", false
}

// Open opens the adapter of that name with the default configuration (dat_ia_open). It may read
// dat.conf, and it may make a device, which for adapters of a network takes system
// calls but never waits for a peer.
//
// PROVIDER_NOT_FOUND: nothing fits, or nothing that fits works; the subtype, the cause and the hint say
// why. Else as [dat.Open].
func Open(name string) (*dat.IA, error) { return std.openWith(name, Options{}) }

// OpenWith is Open with a configuration and requirements (dat_ia_openv).
func OpenWith(name string, opt Options) (*dat.IA, error) { return std.openWith(name, opt) }

// Register makes a name known whose adapter is the device that make returns
// (dat_registry_add_provider). Its version of DAT is that of package dat, and it is thread-safe. It
// comes before lines of dat.conf with that name. It does not block.
//
// PROVIDER_ALREADY_REGISTERED: the name is built in or registered. INVALID_PARAMETER: the
// name is empty, has more than 255 bytes or control characters (ARG1); make is nil (ARG2).
func Register(name string, make Factory) error { return std.register(name, make) }

// Unregister takes a name back, built in or registered (dat_registry_remove_provider). Lines of
// dat.conf stay. It does not block.
//
// PROVIDER_IN_USE: an IA of it is open. PROVIDER_NOT_FOUND (NAME_NOT_REGISTERED).
func Unregister(name string) error { return std.unregister(name) }

// List tells every provider: the built-in ones by name, the registered ones in order, and then the
// lines of dat.conf (dat_registry_list_providers). It reads dat.conf; what is wrong
// with it is returned beside the providers that are known.
func List() ([]Info, error) { return std.list() }

func fail(op, name string, t dat.Type, sub dat.Subtype, cause error, hint string) error {
	return &dat.Error{Type: t, Sub: sub, Op: op, Object: name, Err: cause, Hint: hint}
}

func (s *providers) register(name string, make Factory) error {
	const op = "registry_add_provider"
	switch {
	case name == "" || len(name) >= dat.NameMaxLength || strings.ContainsFunc(name, unprintable):
		return fail(op, name, dat.InvalidParameter, dat.InvalidArg1, nil,
			fmt.Sprintf("a name has 1 to %d bytes and no control characters", dat.NameMaxLength-1))
	case make == nil:
		return fail(op, name, dat.InvalidParameter, dat.InvalidArg2, nil, "no function that makes the device")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.index(name); i >= 0 {
		return fail(op, name, dat.ProviderAlreadyRegistered, dat.NoSubtype, nil,
			fmt.Sprintf("the name is %s; choose another, or unregister it first", s.dynamic[i].info.Source))
	}
	s.dynamic = append(s.dynamic, s.ours(name, "registered", func(settings map[string]string) (verbs.Device, error) {
		if len(settings) > 0 {
			return nil, errors.New("a provider that the program registered takes no settings")
		}
		return make()
	}))
	return nil
}

// index finds a dynamic provider; -1 if there is none. s.mu is held.
func (s *providers) index(name string) int {
	return slices.IndexFunc(s.dynamic, func(p *provider) bool { return p.info.Name == name })
}

func (s *providers) unregister(name string) error {
	const op = "registry_remove_provider"
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.index(name)
	if i < 0 {
		return fail(op, name, dat.ProviderNotFound, dat.NameNotRegistered, nil, "nothing of that name is built in or registered")
	}
	p := s.dynamic[i]
	if p.open > 0 {
		return fail(op, name, dat.ProviderInUse, dat.NoSubtype, nil, fmt.Sprintf("%d IAs are open; close them first", p.open))
	}
	p.removed = true
	s.dynamic = slices.Delete(s.dynamic, i, i+1)
	return nil
}

func (s *providers) list() ([]Info, error) {
	all, sources, err := s.all()
	s.mu.Lock()
	defer s.mu.Unlock()
	infos := make([]Info, len(all))
	for i, p := range all {
		infos[i] = p.info
		infos[i].Source, infos[i].Open = sources[i], p.open
	}
	return infos, err
}

// all returns the providers in the order in which they are tried, and where each is from.
func (s *providers) all() (all []*provider, sources []string, err error) {
	lines, path, err := s.read()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.dynamic {
		all, sources = append(all, p), append(sources, p.info.Source)
	}
	for _, l := range lines {
		p := s.static[origin{path, l.Entry}]
		if p == nil {
			p = s.of(l.Entry)
			s.static[origin{path, l.Entry}] = p
		}
		all, sources = append(all, p), append(sources, fmt.Sprintf("%s:%d", path, l.Number))
	}
	return all, sources, err
}

// read reads dat.conf.
func (s *providers) read() (lines []Line, path string, err error) {
	path, required := s.conf()
	if path == "" {
		return nil, "", nil
	}
	f, err := os.Open(path)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) && !required {
			err = nil
		}
		return nil, path, err
	}
	defer f.Close()
	lines, err = ParseConf(path, f)
	return lines, path, err
}

// of is the provider of a line.
func (s *providers) of(e Entry) *provider {
	p := &provider{set: s, info: Info{
		Name: e.Name, Major: e.Major, Minor: e.Minor, ThreadSafe: e.ThreadSafe,
		Library: e.LibPath, Params: e.IAParams, Openable: e.Ours(),
	}}
	if e.Ours() {
		p.make = func(settings map[string]string) (verbs.Device, error) { return deviceOf(e.Name, e.IAParams, settings) }
	}
	return p
}
