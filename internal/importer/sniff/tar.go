package sniff

import (
	"bytes"
	"strconv"
	"strings"
)

// A tar header has always had a checksum and since 1988 a magic, though not at its beginning.
const (
	tarHeader             = 512
	tarName, tarNameEnd   = 0, 100
	tarSum, tarSumEnd     = 148, 156
	tarMagic, tarMagicEnd = 257, 262
)

func tarOf(head []byte) string {
	if len(head) < tarHeader || !tarSummed(head[:tarHeader]) {
		return ""
	}
	field, _, _ := bytes.Cut(head[tarName:tarNameEnd], []byte{0})
	switch name := strings.ToLower(string(field)); {
	case strings.HasSuffix(name, ".ovf"):
		return "an OVA: unpack it by tar, its .vmdk is the disk"
	case name == "ova.xml":
		return "an XVA, an archive of a machine of Xen: export its disk by itself"
	}
	return "a tar archive: unpack it first, or unpack it into a file system with contentType archive"
}

// tarSummed reports whether a header has a valid checksum, calculated with blanks in its own field, and names a file.
// The oldest programs added signed bytes.
func tarSummed(header []byte) bool {
	said, err := strconv.ParseInt(string(bytes.Trim(header[tarSum:tarSumEnd], " \x00")), 8, 64)
	if err != nil || header[tarName] == 0 && string(header[tarMagic:tarMagicEnd]) != "ustar" {
		return false
	}
	var sum, signed int64
	for i, b := range header {
		if i >= tarSum && i < tarSumEnd {
			b = ' '
		}
		sum, signed = sum+int64(b), signed+int64(int8(b))
	}
	return said == sum || said == signed
}
