package launcher

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"drydock.dev/drydock/internal/qemu/qmp"
)

type process struct {
	*child
	monitor net.Conn
	// connected is closed when client is set, or never will be.
	connected chan struct{}
	client    *qmp.Client
}

// startProcess starts QEMU, which dies with the launcher: a guest without its launcher would have no owner.
//
// QEMU inherits the launcher's own monitor, which exists from the start and which nobody can take away: virt-handler may
// be away when the pod is deleted, and somebody must press the power button and observe how the guest ends.
func startProcess(program string, args []string, log io.Writer, children *reaper, inherited ...*os.File) (*process, error) {
	ours, theirs, err := qmp.SocketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	argv := append([]string{program}, args...)
	argv = append(argv,
		"-chardev", "socket,id=launcher0,fd="+strconv.Itoa(inheritedFD), "-mon", "chardev=launcher0,mode=control")
	c, err := startChild(childProgram{name: "QEMU", argv: argv}, log, children, append([]*os.File{theirs}, inherited...)...)
	if err != nil {
		_ = ours.Close()
		return nil, err
	}
	return &process{child: c, monitor: ours, connected: make(chan struct{})}, nil
}

// watcher has the callbacks of watch: ready when the monitor has answered (not always), event for each event, ended after
// the process's end.
type watcher struct {
	ready func()
	event func(name string, data []byte)
	ended func(exitStatus)
}

func (p *process) watch(w watcher) {
	// Out of band, since QEMU may wait for memory of a post-copy, and virt-handler's monitor answer nothing.
	client, err := qmp.NewOutOfBand(context.Background(), p.monitor, func(e qmp.Event) { w.event(e.Name, e.Data) })
	if err == nil {
		p.client = client
		w.ready()
	}
	close(p.connected)
	status := <-p.ended
	close(p.gone)
	<-p.drained
	deaf := true
	if client != nil {
		// QEMU's end closed the monitor. Its last messages are read before the end.
		<-client.Done()
		deaf = !errors.Is(client.Err(), io.EOF)
		_ = client.Close()
	}
	w.ended(exitStatus{wait: status, stderr: p.stderr.Sentence(), deaf: deaf})
}

// pressEvery is the interval of pressing the power button: a booting guest misses it, and a guest that shuts down ignores
// it.
const pressEvery = 5 * time.Second

func (p *process) powerButton() {
	ticker := time.NewTicker(pressEvery)
	defer ticker.Stop()
	for {
		p.command("system_powerdown")
		select {
		case <-ticker.C:
		case <-p.gone:
			return
		}
	}
}

// quit ends QEMU with the command quit, which flushes its images, or with SIGKILL after patience.
func (p *process) quit(patience time.Duration) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		p.command("quit")
	}()
	select {
	case <-p.gone:
	case <-timer.C:
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
		<-p.gone
	}
	<-answered
}

func (p *process) command(name string) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	select {
	case <-p.connected:
	case <-p.gone:
		return
	}
	if p.client != nil {
		// A monitor fails at QEMU's end, which watch reports.
		_ = p.client.Execute(ctx, name, nil, nil)
	}
}
