package rootfs

import (
	"fmt"
	"io"
	"io/fs"
	"strings"
)

// File types in cpio and stat(2).
const (
	cpioFolder  = 0o040000
	cpioCharDev = 0o020000
	cpioFile    = 0o100000
	cpioLink    = 0o120000
)

// cpioAlign is the alignment of headers and contents.
const cpioAlign = 4

// WriteCPIO writes the "newc" format of Linux's initramfs.
func (f *FS) WriteCPIO(w io.Writer) error {
	for number, entry := range f.Entries() {
		if err := writeCPIOEntry(w, number+1, entry); err != nil {
			return fmt.Errorf("writing %s to the initramfs: %w", entry.Path, err)
		}
	}
	if err := writeCPIOEntry(w, 0, Entry{Path: "/TRAILER!!!"}); err != nil {
		return fmt.Errorf("ending the initramfs: %w", err)
	}
	return nil
}

func writeCPIOEntry(w io.Writer, inode int, entry Entry) error {
	name := strings.TrimPrefix(entry.Path, "/")
	data := entry.Data
	if entry.Mode&fs.ModeSymlink != 0 {
		data = []byte(entry.Link)
	}
	var header strings.Builder
	header.WriteString("070701")
	for _, field := range []uint32{
		uint32(inode), cpioMode(entry.Mode), uint32(entry.UID), uint32(entry.GID),
		1,                 // links
		0,                 // time
		uint32(len(data)), // size
		0, 0,              // device that holds the file
		entry.Major, entry.Minor,
		uint32(len(name) + 1),
		0, // checksum, unused in this format
	} {
		fmt.Fprintf(&header, "%08X", field)
	}
	header.WriteString(name)
	header.WriteByte(0)
	if _, err := io.WriteString(w, header.String()+cpioPadding(header.Len())); err != nil {
		return err
	}
	if _, err := w.Write(data); err != nil {
		return err
	}
	_, err := io.WriteString(w, cpioPadding(len(data)))
	return err
}

func cpioPadding(length int) string {
	return strings.Repeat("\x00", (cpioAlign-length%cpioAlign)%cpioAlign)
}

func cpioMode(mode fs.FileMode) uint32 {
	bits := uint32(mode.Perm())
	if mode&fs.ModeSticky != 0 {
		bits |= 0o1000
	}
	if mode&fs.ModeSetuid != 0 {
		bits |= 0o4000
	}
	switch {
	case mode&fs.ModeDir != 0:
		return bits | cpioFolder
	case mode&fs.ModeSymlink != 0:
		return bits | cpioLink
	case mode&fs.ModeCharDevice != 0:
		return bits | cpioCharDev
	default:
		return bits | cpioFile
	}
}
