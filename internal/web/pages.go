package web

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

// ErrNoPages means that the program was built without `make web`.
var ErrNoPages = errors.New("it has no pages of the web console")

const (
	assetsFolder = "/assets/"
	index        = "index.html"
)

// types are the types of assets. A file of another extension is not served.
var types = map[string]string{
	".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".woff2": "font/woff2", ".svg": "image/svg+xml", ".png": "image/png",
	".txt": "text/plain; charset=utf-8",
}

// pages are the files of the bundle, by name. A request names a file and never a path.
type pages struct {
	index  []byte
	assets map[string][]byte
}

func readPages(files fs.FS) (*pages, error) {
	page, err := fs.ReadFile(files, index)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoPages
	}
	if err != nil {
		return nil, fmt.Errorf("reading the pages of the web console: %w", err)
	}
	p := &pages{index: page, assets: map[string][]byte{}}
	entries, err := fs.ReadDir(files, "assets")
	if err != nil {
		return nil, fmt.Errorf("reading the pages of the web console: %w", err)
	}
	for _, entry := range entries {
		if types[path.Ext(entry.Name())] == "" {
			return nil, fmt.Errorf("reading the pages of the web console: %s is of no type that is served", entry.Name())
		}
		if p.assets[entry.Name()], err = fs.ReadFile(files, path.Join("assets", entry.Name())); err != nil {
			return nil, fmt.Errorf("reading the pages of the web console: %w", err)
		}
	}
	return p, nil
}

func (p *pages) serveIndex(w http.ResponseWriter, origin string) error {
	w.Header().Set("Content-Security-Policy", policy(origin))
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(p.index) // a browser that is gone needs no page
	return nil
}

func (p *pages) serveAsset(w http.ResponseWriter, name string) error {
	content, found := p.assets[name]
	if !found {
		return refusal(http.StatusNotFound, "NotFound", "the web console has no file %s", strings.ToValidUTF8(name, "?"))
	}
	// Its name has a digest of its content.
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	w.Header().Set("Content-Type", types[path.Ext(name)])
	_, _ = w.Write(content)
	return nil
}
