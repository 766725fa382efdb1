package launcher

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/launcher/downwardmetrics/metricstest"
	"drydock.dev/drydock/internal/qemu/vcpus"
)

const (
	metricsRequest = "GET /metrics/XML\n\n"
	metricsRefusal = "INVALID REQUEST\n\n"
	fixedDocument  = "<metrics>\n</metrics>\n"
)

// channel is a guest's end of the channel, in a bubble of time of its own.
type channel struct {
	t     *testing.T
	guest net.Conn
	// documents counts the gathered documents.
	documents int
	ended     error
}

// The server must end after the test.
func inChannel(t *testing.T, test func(*channel)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		guest, host := net.Pipe()
		c := &channel{t: t, guest: guest}
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.ended = answerMetrics(ctx, host, func() ([]byte, error) { c.documents++; return []byte(fixedDocument), nil })
		}()
		test(c)
		cancel()
		<-done
		if c.ended == nil {
			t.Error("the server ended without a reason")
		}
		_ = guest.Close()
	})
}

// floods writes a text repeatedly for this long, and returns the number of accepted bytes.
func (c *channel) floods(text string, d time.Duration) int {
	_ = c.guest.SetWriteDeadline(time.Now().Add(d))
	taken := 0
	for {
		n, err := c.guest.Write([]byte(text))
		taken += n
		if err != nil {
			return taken
		}
	}
}

func (c *channel) reads() (heard func() string) {
	var got bytes.Buffer
	go func() { _, _ = io.Copy(&got, c.guest) }()
	return func() string { synctest.Wait(); return got.String() }
}

func (c *channel) writes(text string) {
	c.t.Helper()
	_ = c.guest.SetWriteDeadline(time.Now().Add(time.Minute))
	if _, err := c.guest.Write([]byte(text)); err != nil {
		c.t.Fatalf("writing %q: %v", text, err)
	}
}

func TestAGuestAsksForMetrics(t *testing.T) {
	inChannel(t, func(c *channel) {
		heard := c.reads()
		c.writes(metricsRequest)
		c.writes("what?\n\n")
		for _, b := range []byte(metricsRequest) {
			c.writes(string(b))
		}
		c.writes(metricsRequest + metricsRequest)
		time.Sleep(time.Second)
		answer := fixedDocument + "\n"
		if got, want := heard(), answer+metricsRefusal+answer+answer; got != want {
			t.Errorf("the guest hears %q, want %q", got, want)
		}
	})
}

func TestAGuestThatWritesWithoutEndIsReadSlowly(t *testing.T) {
	for name, text := range map[string]string{
		"a line without an end": strings.Repeat("x", 4096),
		"zeroes":                strings.Repeat("\x00", 4096),
		"empty requests":        strings.Repeat("\n", 4096),
		"requests":              strings.Repeat(metricsRequest, 100),
		"carriage returns":      strings.Repeat("\r", 4096),
	} {
		inChannel(t, func(c *channel) {
			heard := c.reads()
			const d = 10 * time.Second
			taken := c.floods(text, d)
			if limit := metricsRead * int(d/readRest+2); taken > limit {
				t.Errorf("%s: %d bytes are taken, at most %d are to be", name, taken, limit)
			}
			if limit := int(d/answerRest) + 1; c.documents > limit || strings.Count(heard(), "\n\n") > limit {
				t.Errorf("%s: %d documents and %d answers, at most %d are to be", name, c.documents, strings.Count(heard(), "\n\n"), limit)
			}
		})
	}
}

func TestAGuestThatDoesNotReadIsNotReadEither(t *testing.T) {
	inChannel(t, func(c *channel) {
		if taken := c.floods(metricsRequest, time.Hour); taken > metricsRead+len(metricsRequest) || c.documents != 1 {
			t.Errorf("%d bytes are taken and %d documents gathered while the first answer is not read", taken, c.documents)
		}
	})
}

func TestWithoutFiguresTheChannelIsMadeAnew(t *testing.T) {
	guest, host := net.Pipe()
	defer guest.Close()
	go func() { _, _ = guest.Write([]byte(metricsRequest)) }()
	broken := errors.New("QEMU says nothing")
	if err := answerMetrics(t.Context(), host, func() ([]byte, error) { return nil, broken }); !errors.Is(err, broken) {
		t.Errorf("the server ended with %v", err)
	}
}

func TestAThreadOfSeveralCPUsCountsOnce(t *testing.T) {
	if got, want := threadsOf(vcpus.List{{Thread: 7}, {Thread: 9}, {Thread: 7}}), []int{7, 9}; !slices.Equal(got, want) {
		t.Errorf("the threads are %v, want %v", got, want)
	}
}

// The machine requests nothing: the disk must be written, and everything end with it.
func TestADiskAndAChannelWithQEMU(t *testing.T) {
	r := newLauncher(t)
	c, _ := r.connect()
	disk := filepath.Join(r.dir, "figures.metrics")
	if err := os.Symlink("/dev/null", disk); err != nil { // from an earlier program
		t.Fatal(err)
	}
	reply := c.ask(launch.Request{Start: &launch.Start{
		DownwardMetrics: &launch.DownwardMetrics{HostName: "node7", Disk: disk, Channel: true},
		Args: r.qemuArgs(
			"-blockdev", "driver=file,node-name=figures,read-only=on,filename="+disk, "-device", "virtio-blk-pci,drive=figures",
			"-chardev", "socket,id=port0,server=on,wait=off,path="+filepath.Join(r.dir, layout.MetricsSocket),
			"-device", "virtio-serial-pci", "-device", "virtserialport,chardev=port0,name=org.github.vhostmd.1")}})
	if reply.Error != "" {
		t.Fatal(reply.Error)
	}
	figures := readMetrics(t, disk)
	for name, kind := range metricstest.Names() {
		// Some machines don't report their processors, and a new guest may have used no CPU time.
		if got := figures[name]; got.Type != kind && name != "host NumberOfPhysicalCPUs" {
			t.Errorf("%s is %+v, want the type %s", name, got, kind)
		}
	}
	for name, want := range map[string]string{"host HostName": "node7", "vm ResourceProcessorLimit": "1", "vm ResourceMemoryLimit": "32768"} {
		if got := figures[name].Value; got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if info, err := os.Lstat(disk); err != nil || info.Size() != 256<<10 || info.Mode() != 0o600 {
		t.Errorf("the disk is %v, %v", info, err)
	}
	c.ask(launch.Request{Stop: &launch.Stop{}})
	r.finish(0, c.exited())
	if log := r.log.String(); strings.Contains(log, "metrics") {
		t.Errorf("virt-launcher's log has words about metrics:\n%s", log)
	}
}

// readMetrics waits until a disk has figures.
func readMetrics(t *testing.T, disk string) map[string]metricstest.Metric {
	t.Helper()
	var figures map[string]metricstest.Metric
	waitFor(t, "figures on the disk", func() bool {
		image, err := os.ReadFile(disk)
		if err != nil {
			t.Fatal(err)
		}
		document, err := metricstest.Disk(image)
		if err != nil {
			return false
		}
		figures, err = metricstest.Document(document)
		if err != nil {
			t.Fatal(err)
		}
		return true
	})
	return figures
}

func TestADiskThatCanNotBeMadeStopsTheStart(t *testing.T) {
	r := newLauncher(t)
	c, _ := r.connect()
	reply := c.ask(launch.Request{Start: &launch.Start{Args: r.qemuArgs(),
		DownwardMetrics: &launch.DownwardMetrics{Disk: filepath.Join(r.dir, "none", "figures")}}})
	if !strings.Contains(reply.Error, "making the disk of downward metrics") {
		t.Errorf("the answer is %+v", reply)
	}
	r.finish(1, c.exited())
}
