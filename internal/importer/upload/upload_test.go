package upload_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"mime/multipart"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"drydock.dev/drydock/internal/certs/workertls"
	"drydock.dev/drydock/internal/certs/workertls/workertlstest"
	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/clone"
	"drydock.dev/drydock/internal/importer/job"
	"drydock.dev/drydock/internal/importer/upload"
	"drydock.dev/drydock/test/shipped"
)

// patience bounds one wait on a busy machine.
const patience = 4 * time.Minute

const diskSize = 8 << 20

type worker struct {
	t         *testing.T
	job       *job.Job
	authority *workertls.Authority
	address   string
	proxy     *http.Client
	ended     chan error
	result    transfer.Result
	stop      context.CancelFunc
}

const name = "cdi-upload-disk.ns.svc"

func start(t *testing.T) *worker {
	t.Helper()
	// A worker that is told to stop ends with its process, which may still write: t.TempDir would fail for it.
	root, err := os.MkdirTemp("", "worker")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	w := &worker{t: t, authority: workertlstest.Authority(t)}
	w.job = &job.Job{
		Task:   transfer.Task{Kind: transfer.KindUpload, Size: diskSize},
		Places: job.Under(root), Meter: job.NewMeter(),
	}
	for _, dir := range []string{w.job.Places.Dir, w.job.Places.Work} {
		must(t, os.MkdirAll(dir, 0o755))
	}
	w.job.Places.TLS = workertlstest.Server(t, w.authority, name)
	w.proxy = w.client(workertls.ProxyName)
	w.run()
	return w
}

func (w *worker) run() {
	w.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(w.t, err)
	w.address = listener.Addr().String()
	ctx, cancel := context.WithCancel(w.t.Context())
	w.stop, w.ended = cancel, make(chan error, 1)
	go func() {
		var err error
		w.result, err = upload.Serve(ctx, w.job, listener)
		w.ended <- err
	}()
}

func (w *worker) client(as string) *http.Client {
	w.t.Helper()
	config, err := workertls.ClientConfig(workertlstest.Client(w.t, w.authority, as), name)
	must(w.t, err)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
}

func (w *worker) send(method, path string, body io.Reader, headers ...string) (int, string) {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.t.Context(), method, "https://"+w.address+path, body)
	must(w.t, err)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := w.proxy.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	// Another goroutine than the test's may be here, and can't end the test.
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return response.StatusCode, err.Error()
	}
	return response.StatusCode, strings.TrimSpace(string(text))
}

func (w *worker) filled(want []byte) {
	w.t.Helper()
	select {
	case err := <-w.ended:
		must(w.t, err)
	case <-time.After(patience):
		w.t.Fatal("the worker does not end")
	}
	got, err := os.ReadFile(filepath.Join(w.job.Places.Dir, "disk.img"))
	must(w.t, err)
	if !bytes.Equal(got, append(bytes.Clone(want), make([]byte, diskSize-len(want))...)) {
		w.t.Error("the disk is not what was sent")
	}
	if w.result.VirtualSize != diskSize {
		w.t.Errorf("the result says %d bytes", w.result.VirtualSize)
	}
}

// eventually waits until the progress satisfies is.
func (w *worker) eventually(what string, is func(transfer.Progress) bool) {
	w.t.Helper()
	for end, tick := time.Now().Add(patience), time.Tick(5*time.Millisecond); ; <-tick {
		now := w.job.Meter.Progress()
		if is(now) {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("%s: progress is %+v", what, now)
		}
	}
}

func (w *worker) awaitReady() {
	w.t.Helper()
	w.eventually("the worker takes an upload", func(p transfer.Progress) bool { return p.Ready })
}

func (w *worker) nothingWhole() {
	w.t.Helper()
	if _, err := os.Stat(filepath.Join(w.job.Places.Dir, "disk.img")); !errors.Is(err, os.ErrNotExist) {
		w.t.Errorf("something looks whole: %v", err)
	}
}

func disk(size int) []byte {
	data := make([]byte, size)
	random := rand.New(rand.NewSource(int64(size)))
	random.Read(data[:size/4])
	random.Read(data[3*size/4:])
	return data
}

func gzipped(data []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(data)
	_ = w.Close()
	return b.Bytes()
}

func qcow2(t *testing.T, data []byte) []byte {
	t.Helper()
	raw, image := filepath.Join(t.TempDir(), "raw"), filepath.Join(t.TempDir(), "qcow2")
	must(t, os.WriteFile(raw, data, 0o600))
	out, err := exec.Command(shipped.Program(t, "qemu-img"), "convert", "-f", "raw", "-O", "qcow2", raw, image).CombinedOutput()
	if err != nil {
		t.Fatalf("qemu-img: %v: %s", err, out)
	}
	text, err := os.ReadFile(image)
	must(t, err)
	return text
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAnUploadFillsTheClaim(t *testing.T) {
	data := disk(4 << 20)
	for what, test := range map[string]struct {
		method, path string
		body         []byte
	}{
		"raw":                {http.MethodPost, transfer.UploadPath, data},
		"raw by PUT":         {http.MethodPut, transfer.UploadPath, data},
		"gzip":               {http.MethodPost, transfer.UploadPath, gzipped(data)},
		"qcow2":              {http.MethodPost, transfer.UploadPath, qcow2(t, data)},
		"raw, asynchronous":  {http.MethodPost, transfer.UploadAsyncPath, data},
		"gzip, asynchronous": {http.MethodPost, transfer.UploadAsyncPath, gzipped(data)},
	} {
		t.Run(what, func(t *testing.T) {
			w := start(t)
			w.awaitReady()
			if code, _ := w.send(http.MethodHead, test.path, nil); code != http.StatusOK {
				t.Errorf("HEAD before: %d", code)
			}
			if code, text := w.send(test.method, test.path, bytes.NewReader(test.body)); code != http.StatusOK {
				t.Errorf("%d %s", code, text)
			}
			w.filled(data)
		})
	}
}

func TestAFormFillsTheClaim(t *testing.T) {
	data := disk(1 << 20)
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	must(t, form.WriteField("comment", "my disk"))
	part, err := form.CreateFormFile("file", "disk.img")
	must(t, err)
	_, _ = part.Write(data)
	must(t, form.Close())
	w := start(t)
	w.awaitReady()
	code, text := w.send(http.MethodPost, transfer.UploadFormPath, &body, "Content-Type", form.FormDataContentType())
	if code != http.StatusOK {
		t.Errorf("%d %s", code, text)
	}
	w.filled(data)
}

// cutBody breaks off after its content.
type cutBody struct{ io.Reader }

func (c cutBody) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = errors.New("the cable was pulled")
	}
	return n, err
}

// After any failure nothing of it may be left, and the next upload must succeed like the first.
func TestAfterAFailureTheNextUploadBeginsCleanly(t *testing.T) {
	data := disk(4 << 20)
	small := gzipped(data)
	for what, test := range map[string]struct {
		path string
		body io.Reader
		code int
		says string
	}{
		"cut":                    {transfer.UploadPath, cutBody{bytes.NewReader(data[:3<<20])}, 0, "the cable was pulled"},
		"cut, asynchronous":      {transfer.UploadAsyncPath, cutBody{bytes.NewReader(data[:3<<20])}, 0, "the cable was pulled"},
		"a truncated gzip":       {transfer.UploadPath, bytes.NewReader(small[:len(small)-9]), 400, "truncated"},
		"no image":               {transfer.UploadPath, strings.NewReader("<html>Sign in</html>"), 400, "not the image of a disk"},
		"no image, asynchronous": {transfer.UploadAsyncPath, strings.NewReader("<html>Sign in</html>"), 400, "not the image of a disk"},
		"empty":                  {transfer.UploadPath, strings.NewReader(""), 400, "empty"},
		"larger than the claim":  {transfer.UploadPath, bytes.NewReader(make([]byte, diskSize+512)), 413, "request at least"},
		"larger, without its size": {transfer.UploadPath, io.MultiReader(bytes.NewReader(make([]byte, diskSize)), bytes.NewReader(make([]byte, 512))),
			413, "request more"},
		"a form without a file": {transfer.UploadFormPath, strings.NewReader("x"), 400, "multipart"},
	} {
		t.Run(what, func(t *testing.T) {
			w := start(t)
			w.awaitReady()
			code, text := w.send(http.MethodPost, test.path, test.body)
			if code != test.code || !strings.Contains(text, test.says) {
				t.Errorf("%d %s; want %d and %q", code, text, test.code, test.says)
			}
			w.nothingWhole()
			// A sender that is cut off knows it before the worker does.
			for code = http.StatusServiceUnavailable; code == http.StatusServiceUnavailable; {
				w.awaitReady()
				code, text = w.send(http.MethodPost, transfer.UploadPath, bytes.NewReader(data))
			}
			if code != http.StatusOK {
				t.Errorf("the next one: %d %s", code, text)
			}
			w.filled(data)
		})
	}
}

func TestOneUploadAtATime(t *testing.T) {
	data := disk(4 << 20)
	w := start(t)
	w.awaitReady()
	content, slow := io.Pipe()
	first := make(chan string, 1)
	go func() {
		code, text := w.send(http.MethodPost, transfer.UploadPath, content)
		first <- fmt.Sprint(code, text)
	}()
	_, err := slow.Write(data[:1<<20])
	must(t, err)
	w.eventually("the first is being read", func(p transfer.Progress) bool { return p.Done > 0 && !p.Ready })
	if code, text := w.send(http.MethodPost, transfer.UploadPath, bytes.NewReader(data)); code != http.StatusServiceUnavailable {
		t.Errorf("the second: %d %s", code, text)
	}
	if code, _ := w.send(http.MethodHead, transfer.UploadPath, nil); code != http.StatusServiceUnavailable {
		t.Errorf("HEAD meanwhile: %d", code)
	}
	_, err = slow.Write(data[1<<20:])
	must(t, err)
	must(t, slow.Close())
	if got := <-first; got != "200" {
		t.Errorf("the first: %s", got)
	}
	w.filled(data)
}

func TestWhoeverIsNotTheProxyIsRefused(t *testing.T) {
	w := start(t)
	w.awaitReady()
	w.proxy = w.client(workertls.SourceName("other", "ns"))
	if code, text := w.send(http.MethodPost, transfer.UploadPath, strings.NewReader("x")); code != http.StatusForbidden {
		t.Errorf("another source: %d %s", code, text)
	}
	w.proxy = w.client(workertls.SourceName("disk", "ns"))
	if code, text := w.send(http.MethodPost, transfer.UploadPath, strings.NewReader("x")); code != http.StatusForbidden {
		t.Errorf("its own source, at the path of uploads: %d %s", code, text)
	}
	w.proxy = w.client(workertls.ProxyName)
	if code, text := w.send(http.MethodPost, transfer.ClonePath, strings.NewReader("x")); code != http.StatusForbidden {
		t.Errorf("the proxy, at the path of clones: %d %s", code, text)
	}
	if code, text := w.send(http.MethodPut, transfer.UploadPath, strings.NewReader("x"), "Content-Range", "bytes 1-1/2"); code != http.StatusBadRequest {
		t.Errorf("a piece: %d %s", code, text)
	}
	w.nothingWhole()
}

// A worker dies between completing the disk and its end. The next one must not ask for a second upload, whether or not
// it looks for content.
func TestAWholeDiskIsFoundByTheNextWorker(t *testing.T) {
	for _, keeps := range [][2]bool{{false, false}, {true, true}, {true, false}, {false, true}} {
		w := start(t)
		w.awaitReady()
		w.stop()
		if err := <-w.ended; !errors.Is(err, context.Canceled) {
			t.Fatalf("the worker ends with %v", err)
		}
		data := disk(diskSize)
		must(t, os.WriteFile(filepath.Join(w.job.Places.Dir, ".disk.img.part"), data, 0o600))
		w.job.Task.KeepContent = keeps[0]
		task, err := json.Marshal(w.job.Task)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(w.job.Places.Dir, ".disk.img.journal"),
			fmt.Appendf(nil, `{"Task":%s,"Whole":true,"VirtualSize":%d}`, task, diskSize), 0o600))
		w.job.Task.KeepContent = keeps[1]
		w.run()
		w.filled(data)
	}
}

func TestAStoppedWorkerCutsItsSender(t *testing.T) {
	w := start(t)
	w.awaitReady()
	content, slow := io.Pipe()
	answer := make(chan int, 1)
	go func() {
		code, _ := w.send(http.MethodPost, transfer.UploadPath, content)
		answer <- code
	}()
	_, err := slow.Write(make([]byte, 1<<20))
	must(t, err)
	w.stop()
	if err := <-w.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the worker ends with %v", err)
	}
	_ = slow.CloseWithError(io.ErrClosedPipe)
	if code := <-answer; code == http.StatusOK {
		t.Error("the sender was told that all is well")
	}
	w.nothingWhole()
}

func (w *worker) source(data []byte) *job.Job {
	w.t.Helper()
	j := &job.Job{Places: job.Under(w.t.TempDir()), Meter: job.NewMeter()}
	j.Task = transfer.Task{Kind: transfer.KindCloneSource, URL: "https://" + name + transfer.ClonePath}
	j.Places.TLS = workertlstest.Client(w.t, w.authority, workertls.SourceName("disk", "ns"))
	must(w.t, os.MkdirAll(j.Places.SourceDir, 0o755))
	file, err := os.Create(filepath.Join(j.Places.SourceDir, "disk.img"))
	must(w.t, err)
	defer file.Close()
	for at := 0; at < len(data); at += 4096 {
		p := data[at:min(at+4096, len(data))]
		if !bytes.Equal(p, make([]byte, len(p))) {
			_, err := file.WriteAt(p, int64(at))
			must(w.t, err)
		}
	}
	must(w.t, file.Truncate(int64(len(data))))
	return j
}

// sender calls the worker by the name of its Service, as with the cluster's DNS.
func (w *worker) sender() clone.Sender {
	return clone.Sender{Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, w.address)
	}}
}

func TestACloneIsTheSourceByteForByte(t *testing.T) {
	hostile := make([]byte, 6<<20+512)
	copy(hostile, qcow2(t, disk(1<<20)))
	for what, data := range map[string][]byte{
		"data and holes":               disk(diskSize),
		"nothing but a hole":           make([]byte, diskSize),
		"a disk that looks like qcow2": hostile,
		"a disk that looks like text":  append([]byte("<html>"), make([]byte, 1<<20-6)...),
	} {
		t.Run(what, func(t *testing.T) {
			w := start(t)
			w.awaitReady()
			j := w.source(data)
			result, err := w.sender().Send(t.Context(), j)
			must(t, err)
			if result.VirtualSize != int64(len(data)) || result.Read > int64(len(data)) {
				t.Errorf("the result is %+v", result)
			}
			if p := j.Meter.Progress(); p.Done != int64(len(data)) || p.Total != p.Done {
				t.Errorf("progress ends at %+v", p)
			}
			w.filled(data)
		})
	}
}

func TestAHoleIsNeitherReadNorSent(t *testing.T) {
	w := start(t)
	w.awaitReady()
	data := make([]byte, diskSize)
	copy(data[4<<20:], disk(1<<20))
	result, err := w.sender().Send(t.Context(), w.source(data))
	must(t, err)
	if result.Read > 1<<20 {
		t.Errorf("%d bytes were read of 1 MiB", result.Read)
	}
	w.filled(data)
}

func TestACloneThatDoesNotFitIsRefused(t *testing.T) {
	w := start(t)
	w.awaitReady()
	_, err := w.sender().Send(t.Context(), w.source(disk(diskSize+4096)))
	if fault := job.FaultOf(err); fault.Reason != transfer.ReasonTooLarge {
		t.Errorf("%s: %s", fault.Reason, fault.Message)
	}
	w.nothingWhole()
}

func TestACloneWithoutItsSumIsNotWhole(t *testing.T) {
	w := start(t)
	w.awaitReady()
	w.proxy = w.client(workertls.SourceName("disk", "ns"))
	encoder, err := zstd.NewWriter(nil)
	must(t, err)
	whole := encoder.EncodeAll(disk(4<<20), nil)
	for what, body := range map[string][]byte{
		"all of it, without the sum": whole,
		"half of it":                 whole[:len(whole)/2],
	} {
		code, text := w.send(http.MethodPost, transfer.ClonePath, bytes.NewReader(body), transfer.CloneSizeHeader, fmt.Sprint(4<<20))
		if code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", what, code, text)
		}
		w.awaitReady()
		w.nothingWhole()
	}
}

// TestAWorkerKeepsADiskThatNobodyHasAskedToReplace: it must end before it accepts an upload.
func TestAWorkerKeepsADiskThatNobodyHasAskedToReplace(t *testing.T) {
	w := start(t)
	w.stop()
	if err := <-w.ended; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	disk := filepath.Join(w.job.Places.Dir, "disk.img")
	must(t, os.WriteFile(disk, []byte("a guest's"), 0o600))
	must(t, os.RemoveAll(w.job.Places.Work))
	must(t, os.MkdirAll(w.job.Places.Work, 0o755))
	w.job.Task.KeepContent = true
	w.run()
	err := <-w.ended
	if fault := job.FaultOf(err); err == nil || fault.Reason != transfer.ReasonHasContent {
		t.Errorf("it ends with %v", err)
	}
	if kept, err := os.ReadFile(disk); err != nil || string(kept) != "a guest's" {
		t.Errorf("the disk is %q %v", kept, err)
	}
}
