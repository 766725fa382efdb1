// Package images holds the lists of what goes into Drydock's container images.
// Both the builder (images/build) and whoever wants to know read them; it holds no
// code beside.
package images

import "embed"

// Lists has packages.txt and files.txt of the images that are made from Debian
// packages, each below the image's name.
//
//go:embed */packages.txt */files.txt
var Lists embed.FS
