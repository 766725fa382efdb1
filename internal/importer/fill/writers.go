package fill

import (
	"context"
	"runtime"
	"sync"

	"drydock.dev/drydock/internal/importer/qcow2"
	"drydock.dev/drydock/internal/importer/target"
)

const queued = 2

// writers decode pieces of content and write them to the disk in parallel to the reading goroutine.
type writers struct {
	disk  *target.Disk
	image *qcow2.Header
	work  chan piece
	spare chan []byte
	open  sync.WaitGroup
	done  sync.WaitGroup

	mu  sync.Mutex
	err error
}

// unpacked is the decompressed size of a compressed cluster, 0 for plain data.
type piece struct {
	data     []byte
	at       int64
	unpacked int
}

// newWriters starts the writers. image decodes compressed clusters; it is nil for raw content.
func newWriters(ctx context.Context, disk *target.Disk, image *qcow2.Header) *writers {
	count := min(max(runtime.GOMAXPROCS(0), 2), 4)
	w := &writers{disk: disk, image: image, work: make(chan piece, queued), spare: make(chan []byte, count+queued)}
	w.done.Add(count)
	for range count {
		go func() {
			defer w.done.Done()
			w.run(ctx)
		}()
	}
	return w
}

// run writes until the work ends. After an error it only drains the queue, so that no sender blocks.
func (w *writers) run(ctx context.Context) {
	var decoder *qcow2.Decoder
	var cluster []byte
	defer func() {
		if decoder != nil {
			decoder.Close()
		}
	}()
	write := func(p piece) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if p.unpacked == 0 {
			_, err := w.disk.WriteAt(p.data, p.at)
			return err
		}
		if decoder == nil {
			var err error
			if decoder, err = w.image.NewDecoder(); err != nil {
				return err
			}
		}
		if cap(cluster) < p.unpacked {
			cluster = make([]byte, p.unpacked)
		}
		cluster = cluster[:p.unpacked]
		if err := decoder.Decode(cluster, p.data); err != nil {
			return err
		}
		_, err := w.disk.WriteAt(cluster, p.at)
		return err
	}
	for p := range w.work {
		if w.failure() == nil {
			if err := write(p); err != nil {
				w.fail(err)
			}
		}
		select {
		case w.spare <- p.data:
		default:
		}
		w.open.Done()
	}
}

// put enqueues a copy of a piece. Its error may be that of any earlier piece.
func (w *writers) put(p piece) error {
	if err := w.failure(); err != nil {
		return err
	}
	var buffer []byte
	select {
	case buffer = <-w.spare:
	default:
	}
	p.data = append(buffer[:0], p.data...)
	w.open.Add(1)
	w.work <- p
	return nil
}

func (w *writers) settle() error {
	w.open.Wait()
	return w.failure()
}

func (w *writers) close() {
	close(w.work)
	w.done.Wait()
}

func (w *writers) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *writers) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}
