package qcow2

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// maxInMemory limits the extents in memory (24 bytes each); more are spilled to files, in sorted runs.
const maxInMemory = 1 << 20

// Map has all extents of an image, ordered by their offset in the file.
type Map struct {
	dir     string
	limit   int
	extents []Extent
	spilled []*os.File
	bytes   int64
}

func newMap(dir string) *Map { return &Map{dir: dir, limit: maxInMemory} }

// Allocated returns the bytes of the disk that the image contains.
func (m *Map) Allocated() int64 { return m.bytes }

func (m *Map) add(e Extent, cluster int64) error {
	if e.Compressed {
		m.bytes += cluster
	} else {
		m.bytes += int64(e.Size)
	}
	m.extents = append(m.extents, e)
	if len(m.extents) < m.limit {
		return nil
	}
	return m.spill()
}

func byPlace(a, b Extent) int {
	return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Guest, b.Guest))
}

const recordSize = 21

func (m *Map) spill() error {
	slices.SortFunc(m.extents, byPlace)
	fd, err := unix.Open(m.dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("making a file for the image's tables: %w", err)
	}
	file := os.NewFile(uintptr(fd), "tables")
	m.spilled = append(m.spilled, file)
	out := bufio.NewWriterSize(file, 1<<20)
	record := make([]byte, 0, recordSize)
	for _, e := range m.extents {
		record = binary.LittleEndian.AppendUint64(record[:0], uint64(e.Host))
		record = binary.LittleEndian.AppendUint64(record, uint64(e.Guest))
		record = binary.LittleEndian.AppendUint32(record, uint32(e.Size))
		compressed := byte(0)
		if e.Compressed {
			compressed = 1
		}
		if _, err := out.Write(append(record, compressed)); err != nil {
			return fmt.Errorf("writing the image's tables: %w", err)
		}
	}
	m.extents = m.extents[:0]
	if err := out.Flush(); err != nil {
		return fmt.Errorf("writing the image's tables: %w", err)
	}
	return nil
}

// Close closes the files.
func (m *Map) Close() error {
	var all error
	for _, file := range m.spilled {
		all = errors.Join(all, file.Close())
	}
	return all
}

type run struct {
	memory []Extent
	file   *bufio.Reader
	now    Extent
}

func (r *run) next() (bool, error) {
	if r.file == nil {
		if len(r.memory) == 0 {
			return false, nil
		}
		r.now, r.memory = r.memory[0], r.memory[1:]
		return true, nil
	}
	var record [recordSize]byte
	if _, err := io.ReadFull(r.file, record[:]); errors.Is(err, io.EOF) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("reading the image's tables: %w", err)
	}
	r.now = Extent{
		Host:       int64(binary.LittleEndian.Uint64(record[:])),
		Guest:      int64(binary.LittleEndian.Uint64(record[8:])),
		Size:       int32(binary.LittleEndian.Uint32(record[16:])),
		Compressed: record[20] == 1,
	}
	return true, nil
}

// sorted returns the extents ordered by their offset in the file. It can be called once.
func (m *Map) sorted() iter.Seq2[Extent, error] {
	return func(yield func(Extent, error) bool) {
		runs, err := m.runs()
		if err != nil {
			yield(Extent{}, err)
			return
		}
		for len(runs) > 0 {
			first := 0
			for i := range runs {
				if byPlace(runs[i].now, runs[first].now) < 0 {
					first = i
				}
			}
			if !yield(runs[first].now, nil) {
				return
			}
			more, err := runs[first].next()
			if err != nil {
				yield(Extent{}, err)
				return
			}
			if !more {
				runs = slices.Delete(runs, first, first+1)
			}
		}
	}
}

func (m *Map) runs() ([]*run, error) {
	slices.SortFunc(m.extents, byPlace)
	runs := []*run{{memory: m.extents}}
	for _, file := range m.spilled {
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return nil, fmt.Errorf("reading the image's tables: %w", err)
		}
		runs = append(runs, &run{file: bufio.NewReaderSize(file, 64<<10)})
	}
	var begun []*run
	for _, r := range runs {
		more, err := r.next()
		if err != nil {
			return nil, err
		}
		if more {
			begun = append(begun, r)
		}
	}
	return begun, nil
}
