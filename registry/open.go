package registry

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"kdapl/dat"
	"kdapl/verbs"
)

func (s *providers) openWith(name string, opt Options) (*dat.IA, error) {
	if opt.Major == 0 {
		opt.Major, opt.Minor = dat.DAPLVersionMajor, dat.DAPLVersionMinor
	}
	if opt.Config.Name == "" {
		opt.Config.Name = name
	}
	q := search{name: name, opt: opt, seen: map[*provider]bool{}, miss: dat.NameNotRegistered}
	s.mu.Lock()
	dynamic := slices.Clone(s.dynamic)
	s.mu.Unlock()
	for _, p := range dynamic {
		if ia, err := q.try(p, p.info.Source); ia != nil || err != nil {
			return ia, err
		}
	}
	// The file is read only if nothing that is built in or registered serves.
	all, sources, confErr := s.all()
	if confErr != nil {
		if log := opt.Config.Logger; log != nil {
			log.Warn("dat.conf has faults", "error", confErr)
		}
	}
	for i, p := range all {
		if ia, err := q.try(p, sources[i]); ia != nil || err != nil {
			return ia, err
		}
	}
	if confErr != nil {
		q.causes = append(q.causes, confErr)
	}
	return nil, q.failure()
}

// OpenParams opens an adapter that has no name in any list: the one that params describe, as the ia_params of
// a line of dat.conf do ("iwarp addr=192.0.2.1 crc=off"). Each call makes an adapter of its own. It does not
// block.
//
// PROVIDER_NOT_FOUND (NAME_NOT_REGISTERED): params describe none; the cause says why. Else as [dat.Open].
func OpenParams(params string, cfg dat.Config) (*dat.IA, error) {
	d, err := deviceOf(cfg.Name, params, nil)
	if err != nil {
		return nil, fail("ia_open", params, dat.ProviderNotFound, dat.NameNotRegistered, err, "")
	}
	return dat.Open(d, cfg)
}

// NewDevice makes the adapter that params describe, as [OpenParams] does, for those who open IAs on it themselves. name is
// the adapter's, for messages. It does not block. Errors say what is wrong with the parameters.
func NewDevice(name, params string) (verbs.Device, error) { return deviceOf(name, params, nil) }

// search is the search for a provider that fits and works.
type search struct {
	name   string
	opt    Options
	seen   map[*provider]bool
	known  []string    // names that can be opened
	miss   dat.Subtype // how far the search came; the subtypes are in that order
	tried  bool        // something fitted
	causes causes
}

// causes are errors on one line.
type causes []error

// Error implements error.
func (c causes) Error() string {
	all := make([]string, len(c))
	for i, err := range c {
		all[i] = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return strings.Join(all, "; ")
}

// Unwrap returns the errors.
func (c causes) Unwrap() []error { return c }

// try opens the provider if it fits. No IA and no error: the search goes on.
func (q *search) try(p *provider, source string) (*dat.IA, error) {
	if q.seen[p] {
		return nil, nil
	}
	q.seen[p] = true
	if p.info.Openable && !slices.Contains(q.known, p.info.Name) {
		q.known = append(q.known, p.info.Name)
	}
	if p.info.Name != q.name {
		return nil, nil
	}
	if miss := p.info.misses(q.opt); miss != dat.NoSubtype {
		q.miss = max(q.miss, miss)
		return nil, nil
	}
	q.tried = true
	ia, err := p.openIA(q.opt)
	if err == nil || !errors.Is(err, dat.ProviderNotFound) {
		return ia, err
	}
	if d := new(dat.Error); errors.As(err, &d) && d.Err != nil {
		err = d.Err
	}
	q.causes = append(q.causes, fmt.Errorf("%s: %w", source, err))
	return nil, nil
}

// failure is the error of a search that found nothing.
func (q *search) failure() error {
	if q.tried {
		q.miss = dat.NameNotRegistered
	}
	var hint string
	switch {
	case q.tried:
		hint = "no adapter of that name works"
	case q.miss == dat.MajorNotFound || q.miss == dat.MinorNotFound:
		hint = fmt.Sprintf("version %d.%d was asked for", q.opt.Major, q.opt.Minor)
	case q.miss == dat.ThreadSafetyNotFound && q.opt.NonThreadSafe:
		hint = "a provider that is not thread-safe was asked for"
	case q.miss == dat.ThreadSafetyNotFound:
		hint = "a thread-safe provider was asked for, and dat.conf has a nonthreadsafe one"
	case len(q.known) == 0:
		hint = "no adapter is known"
	default:
		hint = "known adapters: " + strings.Join(q.known, ", ")
	}
	var cause error
	if q.causes != nil {
		cause = q.causes
	}
	return fail("ia_open", q.name, dat.ProviderNotFound, q.miss, cause, hint)
}

// misses says which requirement the provider does not meet, NoSubtype if none.
func (i *Info) misses(opt Options) dat.Subtype {
	switch {
	case i.Major != opt.Major:
		return dat.MajorNotFound
	case i.Minor < opt.Minor:
		return dat.MinorNotFound
	case i.ThreadSafe == opt.NonThreadSafe:
		return dat.ThreadSafetyNotFound
	}
	return dat.NoSubtype
}

// errForeign is why a line of dat.conf that fits is not opened.
var errForeign = errors.New("is a library for C programs, not an adapter of this module; its lib_path would be kdapl or libkdapl.so")

// openIA opens an IA. A provider whose device cannot be made, or has gone, gives PROVIDER_NOT_FOUND.
func (p *provider) openIA(opt Options) (*dat.IA, error) {
	gone := func(err error) error {
		return fail("ia_open", p.info.Name, dat.ProviderNotFound, dat.NameNotRegistered, err, "")
	}
	if p.make == nil {
		return nil, gone(fmt.Errorf("%s %w", p.info.Library, errForeign))
	}
	p.making.Lock()
	defer p.making.Unlock()
	with := settingsKey(opt.Settings)
	made := p.devices[with] == nil
	for {
		if p.devices[with] == nil {
			d, err := p.make(opt.Settings)
			if err != nil {
				return nil, gone(err)
			}
			if d == nil {
				return nil, gone(errors.New("the provider made no device"))
			}
			if p.devices == nil {
				p.devices = map[string]verbs.Device{}
			}
			p.devices[with] = d
		}
		ia, err := dat.Open(counted{p.devices[with], p}, opt.Config)
		if err == nil || !errors.Is(err, verbs.ErrNoDevice) {
			return ia, err
		}
		delete(p.devices, with)
		if made {
			return nil, err
		}
		made = true // the one from before has gone; perhaps it can be made again
	}
}

// settingsKey is the same for the same settings.
func settingsKey(settings map[string]string) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&b, "%q=%q ", key, settings[key])
	}
	return b.String()
}

// counted is a device whose open contexts its provider counts.
type counted struct {
	verbs.Device
	p *provider
}

// Open implements [verbs.Device].
func (c counted) Open(cfg verbs.OpenConfig) (verbs.Context, error) {
	if !c.p.enter() {
		return nil, fmt.Errorf("%w: it was unregistered", verbs.ErrNoDevice)
	}
	ctx, err := c.Device.Open(cfg)
	if err != nil {
		c.p.leave()
		return nil, err
	}
	return &countedContext{Context: ctx, left: sync.OnceFunc(c.p.leave)}, nil
}

func (p *provider) enter() bool {
	p.set.mu.Lock()
	defer p.set.mu.Unlock()
	if p.removed {
		return false
	}
	p.open++
	return true
}

func (p *provider) leave() {
	p.set.mu.Lock()
	defer p.set.mu.Unlock()
	p.open--
}

type countedContext struct {
	verbs.Context
	left func()
}

// Close implements [verbs.Context].
func (c *countedContext) Close() error {
	err := c.Context.Close()
	c.left()
	return err
}
