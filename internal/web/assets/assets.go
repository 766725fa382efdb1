// Package assets owns the pages of the web console: the bundle that `make web` makes of the folder web, embedded into
// the program. It must not serve or change them.
package assets

import (
	"embed"
	"io/fs"
)

//go:embed all:dist
var dist embed.FS

// Files returns the bundle. Without `make web` it has no index.html.
func Files() fs.FS {
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) // the name is valid
	}
	return files
}
