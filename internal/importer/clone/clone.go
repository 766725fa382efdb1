// Package clone is the worker that sends the disk of one claim to the worker that fills another, compressed by zstd, so
// that holes take almost no bytes.
//
// The receiver counts the bytes and compares the checksum after them: if the sender crashes or the connection breaks, no
// clone looks complete, and the sender starts again. The source must not change meanwhile: virt-controller starts this
// worker only when no other pod uses the claim.
//
// The package must not know how the receiver writes, and must never write to the source.
package clone

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"drydock.dev/drydock/internal/certs/workertls"
	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/job"
)

// Timing of the wait for the receiver, which starts at the same time.
const (
	pause    = 500 * time.Millisecond
	patience = 2 * time.Minute
)

const maxHeader = 16 << 10 // bytes of the answer's headers

// Send sends the job's claim to the task's URL.
func Send(ctx context.Context, j *job.Job) (transfer.Result, error) {
	return Sender{Dial: (&net.Dialer{Timeout: 5 * time.Second}).DialContext}.Send(ctx, j)
}

// Sender sends through its own network.
type Sender struct {
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Send is the function Send with the sender's network.
func (s Sender) Send(ctx context.Context, j *job.Job) (transfer.Result, error) {
	disk, size, err := open(j)
	if err != nil {
		return transfer.Result{}, err
	}
	defer disk.Close()
	to, err := s.receiver(j)
	if err != nil {
		return transfer.Result{}, err
	}
	defer to.client.CloseIdleConnections()
	j.Meter.Step("connecting to the receiver of the clone")
	if filled, err := to.await(ctx); err != nil || filled {
		return transfer.Result{VirtualSize: size}, err
	}
	j.Meter.Step("copying")
	stream := &stream{disk: disk, size: size, meter: j.Meter}
	if err := to.send(ctx, stream); err != nil {
		return transfer.Result{}, err
	}
	return transfer.Result{VirtualSize: size, Read: stream.read}, nil
}

func open(j *job.Job) (*os.File, int64, error) {
	path := filepath.Join(j.Places.SourceDir, "disk.img")
	if j.Task.Block {
		path = j.Places.SourceDevice
	}
	disk, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, 0, job.Faultf(transfer.ReasonSourceRefused, "the claim to be cloned has no disk.img: only the disk of a virtual machine can be copied")
	}
	if err != nil {
		return nil, 0, fmt.Errorf("opening the disk to be cloned: %w", err)
	}
	// This works for a device, too.
	size, err := disk.Seek(0, io.SeekEnd)
	if err == nil && size == 0 {
		err = job.Faultf(transfer.ReasonSourceRefused, "the disk to be cloned is empty")
	}
	if err != nil {
		_ = disk.Close()
		return nil, 0, fmt.Errorf("reading the disk to be cloned: %w", err)
	}
	return disk, size, nil
}

type receiver struct {
	client *http.Client
	url    *url.URL
}

func (s Sender) receiver(j *job.Job) (*receiver, error) {
	to, err := url.Parse(j.Task.URL)
	if err != nil || to.Scheme != "https" {
		return nil, fmt.Errorf("the receiver of the clone is %q, which is no https address", j.Task.URL)
	}
	config, err := workertls.ClientConfig(j.Places.TLS, to.Hostname())
	if err != nil {
		return nil, err
	}
	return &receiver{url: to, client: &http.Client{Transport: &http.Transport{
		TLSClientConfig:     config,
		TLSHandshakeTimeout: 10 * time.Second,
		DialContext:         s.Dial,
		// The answer's time has no limit: it follows the writing of the disk.
		MaxResponseHeaderBytes: maxHeader,
	}}}, nil
}

// await waits for the receiver; filled means that the claim is already filled.
func (to *receiver) await(ctx context.Context) (filled bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	again := time.NewTicker(pause)
	defer again.Stop()
	for {
		code, err := to.head(ctx)
		switch code {
		case http.StatusOK:
			return false, nil
		case http.StatusConflict:
			return true, nil
		case http.StatusForbidden:
			return false, job.Faultf(transfer.ReasonUntrusted, "the receiver of the clone does not take it from this worker")
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			if err == nil {
				err = errors.New(http.StatusText(code))
			}
			return false, job.Faultf(transfer.ReasonSourceUnreachable, "the receiver of the clone, %s, takes nothing: %w", to.url.Host, err)
		}
	}
}

func (to *receiver) head(ctx context.Context) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodHead, to.url.String(), nil)
	if err != nil {
		return 0, err
	}
	response, err := to.client.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

func (to *receiver) send(ctx context.Context, disk *stream) error {
	reader, writer := io.Pipe()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to.url.String(), reader)
	if err != nil {
		return fmt.Errorf("sending the clone: %w", err)
	}
	request.Header.Set(transfer.CloneSizeHeader, strconv.FormatInt(disk.size, 10))
	request.Trailer = http.Header{transfer.CloneSumTrailer: nil}
	broken := make(chan error, 1)
	go func() {
		sum, err := disk.copyTo(ctx, writer)
		// The trailer is read after the body's end.
		request.Trailer.Set(transfer.CloneSumTrailer, sum)
		broken <- err
		_ = writer.CloseWithError(err)
	}()
	response, err := to.client.Do(request)
	// The body has no reader any more, whether or not all of it was sent.
	_ = reader.CloseWithError(errGone)
	if cause := <-broken; cause != nil && !errors.Is(cause, errGone) && !errors.Is(cause, io.ErrClosedPipe) {
		return cause
	}
	if err != nil {
		return job.Faultf(transfer.ReasonCut, "the connection to the receiver of the clone broke: %w", err)
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10)) // without it, the code says enough
	said := strings.TrimSpace(string(text))
	switch response.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusRequestEntityTooLarge:
		return job.Faultf(transfer.ReasonTooLarge, "%s", said)
	case http.StatusInsufficientStorage:
		return job.Faultf(transfer.ReasonNoSpace, "%s", said)
	}
	return job.Faultf(transfer.ReasonCut, "the receiver of the clone answered %s: %s", response.Status, said)
}

var errGone = errors.New("the receiver reads no more")
