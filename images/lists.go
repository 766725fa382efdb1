// Package images holds the lists of packages and files in Drydock's container images, for the builder
// (images/build) and tests. It must hold no other code.
package images

import "embed"

// Lists has packages.txt and files.txt of each image from Debian packages, by the image's name.
//
//go:embed */packages.txt */files.txt
var Lists embed.FS
