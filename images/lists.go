// Package images holds the lists of what goes into Drydock's container images.
// The builder (images/build) and tests read them; it holds no other code.
package images

import "embed"

// Lists has packages.txt and files.txt of the images that are made from Debian
// packages, each below the image's name.
//
//go:embed */packages.txt */files.txt
var Lists embed.FS
