package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"kdapl/dat"
	"kdapl/registry"

	"github.com/jedib0t/go-pretty/v6/table"
)

type infoCmd struct {
	Adapters []string `arg:"" optional:"" name:"adapter" help:"Adapters to show (default: all)."`
	JSON     bool     `help:"Write JSON."`
}

// Help is the long text of --help.
func (infoCmd) Help() string {
	return `The attributes of the adapter and of its provider have the names of the DAT specification
(DAT_IA_ATTR and DAT_PROVIDER_ATTR). Adapters are built in, or named in a dat.conf file; the
environment variable DAT_OVERRIDE says where that is, without it /etc/dat.conf is read.`
}

// opened is an adapter that could be opened, or why not.
type opened struct {
	registry.Info
	param dat.IAParam
	err   error
}

// Run opens and shows the adapters.
func (c *infoCmd) Run(e env) error {
	infos, confErr := registry.List()
	if len(c.Adapters) == 0 && confErr != nil {
		fmt.Fprintf(e.stderr, "kdapl info: %v\n", confErr)
	}
	if len(c.Adapters) > 0 {
		infos = chosen(infos, c.Adapters)
	}
	adapters := c.open(infos)
	show := infoText
	if c.JSON {
		show = infoJSON
	}
	if err := show(e, adapters); err != nil {
		return err
	}
	if len(c.Adapters) == 0 { // what cannot be opened is shown, and no failure
		return nil
	}
	var errs []error
	for _, a := range adapters {
		errs = append(errs, a.err)
	}
	err := errors.Join(errs...)
	if errors.Is(err, dat.ProviderNotFound) {
		err = usageError{err}
	}
	return err
}

// chosen are the infos of names. A name that is not known gets one too: opening it says what is wrong.
func chosen(infos []registry.Info, names []string) []registry.Info {
	var some []registry.Info
	for _, name := range names {
		i := slices.IndexFunc(infos, func(i registry.Info) bool { return i.Name == name })
		if i < 0 {
			some = append(some, registry.Info{Name: name, Source: "unknown"})
			continue
		}
		some = append(some, infos[i])
	}
	return some
}

// open opens each name once and asks for its attributes.
func (c *infoCmd) open(infos []registry.Info) []opened {
	var all []opened
	for _, info := range infos {
		if slices.ContainsFunc(all, func(o opened) bool { return o.Name == info.Name }) {
			continue
		}
		o := opened{Info: info}
		o.param, o.err = query(info)
		all = append(all, o)
	}
	return all
}

// query asks for the attributes of an adapter.
func query(info registry.Info) (p dat.IAParam, err error) {
	ia, err := registry.OpenWith(info.Name, registry.Options{Major: info.Major, Minor: info.Minor, NonThreadSafe: info.Source != "unknown" && !info.ThreadSafe})
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, ia.Close(context.Background(), dat.CloseAbrupt)) }()
	return ia.Query()
}

// infoColumns is how many adapters stand side by side in a table.
const infoColumns = 3

// infoText shows adapters as tables, an attribute a line.
func infoText(e env, adapters []opened) error {
	var b strings.Builder
	var good []opened
	for _, a := range adapters {
		if a.err == nil {
			good = append(good, a)
		}
	}
	for some := range slices.Chunk(good, infoColumns) {
		fmt.Fprintln(&b, infoTable(e, some))
	}
	for _, a := range adapters {
		if a.err != nil {
			fmt.Fprintf(&b, "%s (%s) cannot be opened: %v\n", e.paint(strong, a.Name), a.Source, a.err)
		}
	}
	_, err := io.WriteString(e.stdout, b.String())
	return err
}

func infoTable(e env, adapters []opened) string {
	t := newTable()
	head, from := table.Row{""}, table.Row{"from"}
	for _, a := range adapters {
		head = append(head, e.paint(strong, a.Name))
		source := a.Source
		if a.Params != "" {
			source += "\n" + a.Params
		}
		from = append(from, source)
	}
	t.AppendHeader(head)
	t.AppendRow(from)
	for _, g := range attributeGroups {
		t.AppendSeparator()
		t.AppendRow(table.Row{e.paint(strong, g.title)})
		for _, attr := range g.attributes {
			row := table.Row{"  " + attr.name}
			for _, a := range adapters {
				row = append(row, attr.text(g.of(&a.param, attr)))
			}
			t.AppendRow(row)
		}
	}
	return t.Render()
}

// infoDoc is an adapter in JSON.
type infoDoc struct {
	Name       string  `json:"name"`
	Source     string  `json:"source"`
	Library    string  `json:"lib_path,omitempty"`
	Params     string  `json:"ia_params,omitempty"`
	ThreadSafe bool    `json:"thread_safe"`
	Error      string  `json:"error,omitempty"`
	Adapter    ordered `json:"adapter,omitempty"`
	Provider   ordered `json:"provider,omitempty"`
}

// infoJSON shows adapters as JSON.
func infoJSON(e env, adapters []opened) error {
	docs := []infoDoc{}
	for _, a := range adapters {
		d := infoDoc{Name: a.Name, Source: a.Source, Library: a.Library, Params: a.Params, ThreadSafe: a.ThreadSafe}
		if a.err != nil {
			d.Error = a.err.Error()
		} else {
			d.Adapter, d.Provider = documents(&a.param, false), documents(&a.param, true)
		}
		docs = append(docs, d)
	}
	return writeJSON(e.stdout, docs)
}
