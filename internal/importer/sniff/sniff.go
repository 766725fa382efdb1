// Package sniff detects the compression and the format of content by its first bytes, or that it is no disk. It is
// pure. Content that it does not recognize with certainty is a raw disk.
package sniff

import (
	"bytes"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/job"
	"drydock.dev/drydock/internal/qemu/qcow2"
)

// HeadSize is the number of bytes that it needs.
const HeadSize = 64 << 10

// Compression is the compression of content.
type Compression string

// The compressions.
const (
	None Compression = ""
	Gzip Compression = "gzip"
	XZ   Compression = "xz"
	Zstd Compression = "zstd"
)

// Format is a format of disk images.
type Format string

// The formats. Except for raw and qcow2 they are QEMU's names, and qemu-img reads them.
const (
	Raw   Format = "raw"
	Qcow2 Format = "qcow2"
	VMDK  Format = "vmdk"
	VHDX  Format = "vhdx"
	VDI   Format = "vdi"
	VHD   Format = "vpc"
)

// CompressionOf returns the compression of content.
func CompressionOf(head []byte) Compression {
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b, 8}):
		return Gzip
	case bytes.HasPrefix(head, []byte("\xfd7zXZ\x00")):
		return XZ
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return Zstd
	case len(head) >= 4 && head[0]&0xf0 == 0x50 && bytes.Equal(head[1:4], []byte{0x2a, 0x4d, 0x18}): // a skippable frame
		return Zstd
	}
	return None
}

var formats = []struct {
	format Format
	at     int
	magic  string
}{
	{Qcow2, 0, qcow2.Magic},
	{VMDK, 0, "KDMV"},
	{VHDX, 0, "vhdxfile"},
	{VDI, 64, "\x7f\x10\xda\xbe"},
	{VHD, 0, "conectix"},
}

// unsupported are other files that are served by mistake or as a server's error message.
var unsupported = []struct{ magic, is string }{
	{"BZh", "compressed by bzip2: compress it by gzip, xz or zstd"},
	{"PK\x03\x04", "a zip archive: unpack it first"},
	{"PK\x05\x06", "a zip archive without files"},
	{"PK\x07\x08", "a part of a zip archive: unpack it first"},
	{"!<arch>\ndebian-binary", "a Debian package: unpack it first, the disk may be a file in it"},
	{"!<arch>\n", "an ar archive: unpack it first"},
	{"\xed\xab\xee\xdb", "an RPM package: unpack it first, the disk may be a file in it"},
	{"070701", "a cpio archive: unpack it first"},
	{"070702", "a cpio archive: unpack it first"},
	{"070707", "a cpio archive: unpack it first"},
	{"MSCF\x00\x00\x00\x00", "a cabinet archive: unpack it first"},
	{"xar!", "a xar archive: unpack it first"},
	{"MSWIM\x00\x00\x00", "a wim archive: install from it, or convert it to a disk"},
	{"7z\xbc\xaf\x27\x1c", "a 7z archive: unpack it first"},
	{"Rar!\x1a\x07", "a rar archive: unpack it first"},
	{"LZIP", "compressed by lzip: compress it by gzip, xz or zstd"},
	{"\x04\x22\x4d\x18", "compressed by lz4: compress it by gzip, xz or zstd"},
	{"\x1f\x9d", "compressed by compress: compress it by gzip, xz or zstd"},
	{"\x5d\x00\x00", "compressed by lzma: compress it by gzip, xz or zstd"},
	{"%PDF-", "a PDF document"},
	{"\x89PNG", "a picture"},
	{"\x7fELF", "a program"},
	{"#!", "a script"},
	{"COWD", "a part of a vmdk image in several files: make one of them by qemu-img convert"},
	{"QED\x00", "a qed image: convert it by qemu-img"},
}

// texts begin documents, in letters of either case.
var texts = []string{"<!doctype", "<html", "<?xml", "<error", "{\"", "{\n", "404 ", "not found", "access denied"}

// FormatOf returns the format of uncompressed content, or a Fault if it is no disk image. size is the
// content's, -1 if unknown.
func FormatOf(head []byte, size int64) (Format, error) {
	if len(head) == 0 {
		return "", notAnImage("empty")
	}
	if CompressionOf(head) != None {
		return "", job.Faultf(transfer.ReasonInvalidImage, "the image is compressed twice: compress it once")
	}
	for _, f := range formats {
		if len(head) >= f.at+len(f.magic) && string(head[f.at:f.at+len(f.magic)]) == f.magic {
			return f.format, nil
		}
	}
	for _, s := range unsupported {
		if bytes.HasPrefix(head, []byte(s.magic)) {
			return "", notAnImage(s.is)
		}
	}
	if is := tarOf(head); is != "" {
		return "", notAnImage(is)
	}
	start := bytes.TrimLeft(head, " \t\r\n\ufeff")
	if bytes.HasPrefix(start, []byte("# Disk DescriptorFile")) {
		return "", job.Faultf(transfer.ReasonUnsafeImage, "the vmdk image is only a description that refers to other files: make one image of them by qemu-img convert")
	}
	lower := bytes.ToLower(start[:min(len(start), 64)])
	for _, text := range texts {
		if bytes.HasPrefix(lower, []byte(text)) {
			return "", notAnImage("text, and begins with " + quote(start))
		}
	}
	return Raw, CheckRaw(size)
}

// CheckRaw returns a Fault for a size that no raw disk has; -1 is unknown.
func CheckRaw(size int64) error {
	if size >= 0 && size%512 != 0 || size == 0 {
		return job.Faultf(transfer.ReasonInvalidImage, "the content is not the image of a disk: it has no known format, and with its %d bytes it is no raw disk, which has whole sectors of 512 bytes", size)
	}
	return nil
}

func notAnImage(is string) error {
	return job.Faultf(transfer.ReasonInvalidImage, "the content is not the image of a disk: it is %s", is)
}

func quote(text []byte) string {
	shown := bytes.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, text[:min(len(text), 40)])
	return "\"" + string(shown) + "\""
}
