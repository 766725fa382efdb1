// Package images holds the lists of packages and files in Drydock's container images. The builder
// (images/build) and tests read them; it holds no other code.
package images

import "embed"

// Lists has packages.txt and files.txt of each image that is made from Debian packages, in a folder
// with the image's name.
//
//go:embed */packages.txt */files.txt
var Lists embed.FS
