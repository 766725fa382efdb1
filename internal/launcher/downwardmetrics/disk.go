package downwardmetrics

import (
	"encoding/binary"
	"fmt"
)

// DiskSize is the size of the disk in bytes. vhostmd's tools read 64 KiB at a time.
const DiskSize = 256 << 10

// signature starts the disk's header of four fields, in network byte order: signature, busy, sum of the document's
// bytes, and its length. The document follows.
const signature = "mvbd"

const (
	busyAt     = 4
	sumAt      = 8
	lengthAt   = 12
	headerSize = 16
)

// Write is one write to the disk.
type Write struct {
	Offset int64
	Data   []byte
}

// Blank returns the write to a disk without a document, which tells readers to wait.
func Blank() Write { return Write{0, header(true, 0, 0)} }

// Disk is the disk's state between two documents. The zero value is a blank disk.
type Disk struct {
	sum uint32
}

// Replace returns the writes that put a document on the disk, in order. A reader reads the header before and after the
// document, and accepts the document if the disk was never busy and both sums are equal. So a document with the last
// one's sum gets another newline.
func (d *Disk) Replace(document []byte) ([]Write, error) {
	if sumOf(document) == d.sum {
		document = append(document[:len(document):len(document)], '\n')
	}
	if len(document) > DiskSize-headerSize {
		return nil, fmt.Errorf("a document of %d bytes does not fit on the disk", len(document))
	}
	d.sum = sumOf(document)
	return []Write{
		{busyAt, binary.BigEndian.AppendUint32(nil, 1)},
		{headerSize, document},
		{sumAt, header(false, d.sum, len(document))[sumAt:]},
		{busyAt, binary.BigEndian.AppendUint32(nil, 0)},
	}, nil
}

func header(busy bool, sum uint32, length int) []byte {
	h := make([]byte, headerSize)
	copy(h, signature)
	if busy {
		h[busyAt+3] = 1
	}
	binary.BigEndian.PutUint32(h[sumAt:], sum)
	binary.BigEndian.PutUint32(h[lengthAt:], uint32(length)) // a document that fits on the disk
	return h
}

func sumOf(document []byte) uint32 {
	var sum uint32
	for _, b := range document {
		sum += uint32(b)
	}
	return sum
}
