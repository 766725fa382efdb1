// Command webbuild bundles the pages of the web console:
//
//	go -C tools run ./webbuild -web ../web -out ../internal/web/assets/dist
//
// The packages of npm must be in web/node_modules. The bundle is the same for the same source and packages. It must
// check no types: `make web-check` does.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

const (
	entry = "src/shell/main.tsx"
	// maxFirstView bounds the compressed JavaScript that is loaded before the first view.
	maxFirstView = 250 << 10
	notices      = "assets/NOTICES.txt"
	packageList  = "packages.json"
)

func main() {
	web := flag.String("web", "../web", "folder of the source")
	out := flag.String("out", "../internal/web/assets/dist", "folder for the bundle")
	flag.Parse()
	if err := run(*web, *out); err != nil {
		fmt.Fprintf(os.Stderr, "webbuild: %v\n", err)
		os.Exit(1)
	}
}

func run(web, out string) error {
	web, err := filepath.Abs(web)
	if err != nil {
		return fmt.Errorf("finding the folder of the source: %w", err)
	}
	made, files, err := bundle(web)
	if err != nil {
		return err
	}
	page, err := os.ReadFile(filepath.Join(web, index))
	if err != nil {
		return fmt.Errorf("reading the page: %w", err)
	}
	view, err := made.firstView(entry)
	if err != nil {
		return err
	}
	if files[index], err = fill(page, view); err != nil {
		return err
	}
	packages, err := bundled(web, made)
	if err != nil {
		return err
	}
	if files[packageList], err = json.MarshalIndent(packages, "", "  "); err != nil {
		return fmt.Errorf("listing the packages: %w", err)
	}
	files[notices] = noticesOf(packages)
	if err := report(os.Stdout, files, view); err != nil {
		return err
	}
	return write(out, files)
}

// bundle returns the scripts, and one file of all styles: esbuild repeats the styles that the parts of a split bundle share,
// and no script that is imported later would load its own.
func bundle(web string) (metafile, map[string][]byte, error) {
	split, files, err := build(web, true)
	if err != nil {
		return metafile{}, nil, err
	}
	whole, more, err := build(web, false)
	if err != nil {
		return metafile{}, nil, err
	}
	for name := range split.Outputs {
		if path.Ext(name) == styleSheet {
			delete(split.Outputs, name)
			delete(files, name)
		}
	}
	for name, out := range whole.Outputs {
		if path.Ext(name) != script {
			split.Outputs[name], files[name] = out, more[name]
		}
	}
	return split, files, nil
}

const script, styleSheet = ".js", ".css"

func build(web string, splitting bool) (metafile, map[string][]byte, error) {
	o := options(web)
	o.Splitting = splitting
	result := api.Build(o)
	if len(result.Errors) > 0 {
		text := api.FormatMessages(result.Errors, api.FormatMessagesOptions{})
		return metafile{}, nil, fmt.Errorf("bundling %s:\n%s", entry, strings.Join(text, ""))
	}
	var made metafile
	if err := json.Unmarshal([]byte(result.Metafile), &made); err != nil {
		return metafile{}, nil, fmt.Errorf("reading esbuild's account of the bundle: %w", err)
	}
	files := map[string][]byte{}
	for _, file := range result.OutputFiles {
		name, err := filepath.Rel(web, file.Path)
		if err != nil {
			return metafile{}, nil, fmt.Errorf("placing %s: %w", file.Path, err)
		}
		files[filepath.ToSlash(name)] = file.Contents
	}
	return made, files, nil
}

func options(web string) api.BuildOptions {
	return api.BuildOptions{
		AbsWorkingDir: web, EntryPoints: []string{entry}, Outdir: web, Bundle: true, Metafile: true,
		Format: api.FormatESModule, Platform: api.PlatformBrowser, Target: api.ES2022, JSX: api.JSXAutomatic,
		EntryNames: "assets/[name]-[hash]", ChunkNames: "assets/[name]-[hash]", AssetNames: "assets/[name]-[hash]", PublicPath: "/",
		MinifyWhitespace: true, MinifyIdentifiers: true, MinifySyntax: true, LegalComments: api.LegalCommentsNone,
		Define: map[string]string{"process.env.NODE_ENV": `"production"`},
		Loader: map[string]api.Loader{".woff2": api.LoaderFile, ".svg": api.LoaderFile, ".png": api.LoaderFile},
	}
}

const keep = "README"

// write replaces the content of the folder.
func write(out string, files map[string][]byte) error {
	old, err := os.ReadDir(out)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("looking into the folder of the bundle: %w", err)
	}
	for _, file := range old {
		if file.Name() != keep {
			if err := os.RemoveAll(filepath.Join(out, file.Name())); err != nil {
				return fmt.Errorf("removing the previous bundle: %w", err)
			}
		}
	}
	// Without the page a bundle that was interrupted counts as none.
	if err := os.MkdirAll(filepath.Join(out, "assets"), 0o755); err != nil {
		return fmt.Errorf("making the folder of the bundle: %w", err)
	}
	page := files[index]
	delete(files, index)
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(out, filepath.FromSlash(name)), content, 0o644); err != nil {
			return fmt.Errorf("writing the bundle: %w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(out, index), page, 0o644); err != nil {
		return fmt.Errorf("writing the bundle: %w", err)
	}
	return nil
}
