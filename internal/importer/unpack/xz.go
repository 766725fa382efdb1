package unpack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/confine"
	"drydock.dev/drydock/internal/importer/job"
	"drydock.dev/drydock/internal/importer/sniff"
)

// Limits of xz: a dictionary of 64 MiB, as for `xz -9`, the address space of its libraries, and time for some TiB.
const (
	xzMemory  = "70MiB"
	xzAddress = 256 << 20
	xzTime    = 24 * time.Hour
)

// The program xz is several times as fast as the Go implementations and, unlike them, limits the dictionary of every
// block.
type xz struct {
	program *confine.Program
	out     io.ReadCloser
	cancel  context.CancelFunc
	source  *source
	ended   error
}

func openXZ(ctx context.Context, from *source) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, "xz", "--decompress", "--stdout", "--threads=1", "--memlimit-decompress="+xzMemory)
	x := &xz{program: confine.New(cmd, confine.Limits{Memory: xzAddress, CPU: xzTime}), cancel: cancel, source: from}
	cmd.Stdin = from
	var err error
	if x.out, err = cmd.StdoutPipe(); err == nil {
		err = x.program.Start()
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("decompressing content by xz: %w", err)
	}
	return x, nil
}

// Read implements io.Reader.
func (x *xz) Read(p []byte) (int, error) {
	if x.ended != nil {
		return 0, x.ended
	}
	n, err := x.out.Read(p)
	if err == nil {
		return n, nil
	}
	x.ended = x.verdict()
	return n, x.ended
}

func (x *xz) verdict() error {
	err := x.program.Wait()
	var fault *job.Fault
	switch {
	case err == nil:
		return io.EOF
	case x.source.err != nil:
		return x.source.err
	case strings.Contains(x.program.Output(), "Memory usage limit"):
		return job.Faultf(transfer.ReasonLimit, "decompressing the content takes a dictionary of more than 64 MiB: compress it by xz -9 or less")
	case errors.As(err, &fault):
		return err
	case strings.Contains(x.program.Output(), "Unexpected end of input"):
		return x.source.damaged(sniff.XZ, io.ErrUnexpectedEOF)
	}
	return x.source.damaged(sniff.XZ, err)
}

// Close kills xz.
func (x *xz) Close() error {
	x.cancel()
	if x.ended == nil {
		x.ended = errors.New("decompression was ended")
		_ = x.program.Wait() // killed, or its error no longer matters
	}
	return nil
}
