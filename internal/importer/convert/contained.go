package convert

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/job"
	"drydock.dev/drydock/internal/importer/sniff"
)

// selfContained refuses an image that would make QEMU open other files. QEMU follows no file names in vhdx and vdi.
func selfContained(format sniff.Format, image io.ReaderAt) error {
	switch format {
	case sniff.VMDK:
		return vmdkContained(image)
	case sniff.VHD:
		footer := make([]byte, 512)
		if err := readAt(image, footer, 0); err != nil {
			return err
		}
		const differencing = 4
		if binary.BigEndian.Uint32(footer[60:]) == differencing {
			return refers(sniff.VHD)
		}
	}
	return nil
}

const maxDescriptor = 1 << 20 // bytes

func vmdkContained(image io.ReaderAt) error {
	header := make([]byte, 512)
	if err := readAt(image, header, 0); err != nil {
		return err
	}
	capacity := binary.LittleEndian.Uint64(header[12:])
	at, sectors := binary.LittleEndian.Uint64(header[28:]), binary.LittleEndian.Uint64(header[36:])
	if capacity == 0 {
		// QEMU would open the extents' files.
		return refers(sniff.VMDK)
	}
	if at == 0 {
		return nil
	}
	if sectors > maxDescriptor/512 || at > 1<<40 {
		return job.Faultf(transfer.ReasonInvalidImage, "the vmdk image is damaged: its description has %d sectors", sectors)
	}
	// QEMU reads at least this much, whatever the header says.
	text := make([]byte, max(sectors*512, 20<<10))
	n, err := image.ReadAt(text, int64(at)*512)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the image again: %w", err)
	}
	return vmdkText(text[:n])
}

// vmdkText refuses a parent, and any extent but the image itself.
func vmdkText(text []byte) error {
	text, _, _ = bytes.Cut(text, []byte{0})
	extents := 0
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		key, value, _ := bytes.Cut(line, []byte("="))
		switch string(bytes.ToLower(bytes.TrimSpace(key))) {
		case "parentcid":
			if !bytes.EqualFold(bytes.TrimSpace(value), []byte("ffffffff")) {
				return refers(sniff.VMDK)
			}
		case "parentfilenamehint":
			return refers(sniff.VMDK)
		}
		for _, access := range []string{"RW ", "RDONLY ", "NOACCESS "} {
			if bytes.HasPrefix(line, []byte(access)) {
				extents++
			}
		}
	}
	if extents > 1 {
		return refers(sniff.VMDK)
	}
	return nil
}

func readAt(image io.ReaderAt, p []byte, at int64) error {
	if _, err := image.ReadAt(p, at); errors.Is(err, io.EOF) {
		return job.Faultf(transfer.ReasonInvalidImage, "the image ends before its header does: it is truncated")
	} else if err != nil {
		return fmt.Errorf("reading the image again: %w", err)
	}
	return nil
}
