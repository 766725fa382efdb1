package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"html"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
)

const (
	index       = "index.html"
	stylesPlace = "<!--styles-->"
	scriptPlace = "<!--script-->"
)

// metafile is the part of esbuild's account that is used.
type metafile struct {
	Outputs map[string]output `json:"outputs"`
}

type output struct {
	EntryPoint string `json:"entryPoint"`
	Imports    []struct {
		Path string `json:"path"`
		Kind string `json:"kind"`
	} `json:"imports"`
	Inputs map[string]struct {
		Bytes int `json:"bytesInOutput"`
	} `json:"inputs"`
}

// view names the files that a page loads at once: the script, the scripts that it imports, and the styles.
type view struct {
	script           string
	imported, styles []string
}

func (m metafile) firstView(entry string) (view, error) {
	var v view
	for _, name := range slices.Sorted(maps.Keys(m.Outputs)) {
		switch {
		case path.Ext(name) == styleSheet:
			v.styles = append(v.styles, name)
		case m.Outputs[name].EntryPoint == entry:
			v.script = name
		}
	}
	if v.script == "" {
		return view{}, fmt.Errorf("esbuild made no script of %s", entry)
	}
	seen := map[string]bool{v.script: true}
	for next := []string{v.script}; len(next) > 0; next = next[1:] {
		for _, used := range m.Outputs[next[0]].Imports {
			if used.Kind == "import-statement" && !seen[used.Path] && path.Ext(used.Path) == script {
				seen[used.Path] = true
				v.imported, next = append(v.imported, used.Path), append(next, used.Path)
			}
		}
	}
	slices.Sort(v.imported)
	return v, nil
}

func fill(page []byte, v view) ([]byte, error) {
	var styles string
	for _, name := range v.styles {
		styles += `<link rel="stylesheet" href="/` + html.EscapeString(name) + `">` + "\n"
	}
	script := `<script type="module" src="/` + html.EscapeString(v.script) + `"></script>`
	for _, name := range v.imported {
		script += "\n" + `<link rel="modulepreload" href="/` + html.EscapeString(name) + `">`
	}
	for place, text := range map[string]string{stylesPlace: strings.TrimSuffix(styles, "\n"), scriptPlace: script} {
		if bytes.Count(page, []byte(place)) != 1 {
			return nil, fmt.Errorf("web/%s must have %s once", index, place)
		}
		page = bytes.Replace(page, []byte(place), []byte(text), 1)
	}
	return page, nil
}

// report prints the sizes, and fails if the first view needs too much.
func report(to io.Writer, files map[string][]byte, v view) error {
	scripts, styles, total := 0, 0, 0
	for _, name := range append([]string{v.script}, v.imported...) {
		scripts += compressed(files[name])
	}
	for _, name := range v.styles {
		styles += compressed(files[name])
	}
	for _, content := range files {
		total += len(content)
	}
	fmt.Fprintf(to, "the first view loads %d KB of scripts and %d KB of styles, compressed; the whole bundle has %d KB\n",
		scripts>>10, styles>>10, total>>10)
	if scripts > maxFirstView {
		return fmt.Errorf("the first view loads %d bytes of compressed scripts, and may load %d: load what it doesn't need by import()", scripts, maxFirstView)
	}
	return nil
}

func compressed(content []byte) int {
	var small bytes.Buffer
	w := gzip.NewWriter(&small)
	_, _ = w.Write(content) // a buffer takes everything
	_ = w.Close()
	return small.Len()
}
