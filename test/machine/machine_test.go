package machine_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/disk"
	"drydock.dev/drydock/internal/handler/podpath"
	"drydock.dev/drydock/internal/launcher/bootprobe"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/test/accelerator"
	"drydock.dev/drydock/test/console"
	"drydock.dev/drydock/test/guest"
	"drydock.dev/drydock/test/shipped"
)

// buildCache is shared with the tests of the guest and with `make images`.
const buildCache = "../../build/cache"

// nodeName stands for the node's name.
const nodeName = "node-of-the-test"

// patience bounds one wait on a busy machine, life all that a test does with one guest, and the making of its disks: a
// guest with UEFI computes for half a minute.
const (
	patience = 4 * time.Minute
	life     = 20 * time.Minute
)

// firmwareDir has UEFI's files in the image.
var firmwareDir = filepath.Dir(layout.UEFICode)

// pod stands for a launcher's container: virt-launcher in a folder that stands for the container's paths.
type pod struct {
	t       *testing.T
	ctx     context.Context
	dir     string
	program *exec.Cmd
	ended   chan struct{}
	conn    net.Conn
	lines   *bufio.Scanner
	console *console.Console
	monitor *qmp.Client
}

func TestMain(m *testing.M) {
	code := 1
	defer func() { os.Exit(code) }()
	folder, err := os.MkdirTemp("", "virt-launcher")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(folder) }()
	launcherProgram = filepath.Join(folder, "virt-launcher")
	build := exec.Command("go", "build", "-o", launcherProgram, "drydock.dev/drydock/cmd/virt-launcher")
	build.Stdout, build.Stderr = os.Stdout, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Println("building virt-launcher:", err)
		return
	}
	code = m.Run()
}

// launcherProgram is the virt-launcher under test.
var launcherProgram string

// building is held by the test that builds a guest: the others find it built.
var building sync.Mutex

func buildGuest(t *testing.T, flavor guest.Flavor) guest.Files {
	t.Helper()
	building.Lock()
	defer building.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), life)
	defer cancel()
	files, err := guest.Build(ctx, buildCache, flavor)
	if err != nil {
		t.Fatalf("building the guest: %v", err)
	}
	for _, path := range []*string{&files.Kernel, &files.Initrd, &files.Disk} {
		if *path, err = filepath.Abs(*path); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func newPod(t *testing.T) *pod {
	t.Helper()
	dir, err := os.MkdirTemp("", "pod") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), life)
	p := &pod{t: t, ctx: ctx, dir: dir, ended: make(chan struct{})}
	for _, path := range []string{layout.PrivateDir, layout.EphemeralDir, layout.KernelBootDir} {
		if err := os.MkdirAll(p.path(path), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p.program = exec.Command(launcherProgram, "-dir", p.path(layout.PrivateDir),
		"-qemu", shipped.Program(t, "qemu-system-x86_64"), "-tpm", shipped.Program(t, "swtpm"),
		"-share", shipped.Program(t, "virtiofsd"))
	p.program.Stderr = os.Stderr
	if err := p.program.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.program.Wait() // its last message tells how it ended
	}()
	t.Cleanup(func() {
		if t.Failed() && p.console != nil {
			t.Logf("the guest's console:\n%s", p.console.Transcript())
		}
		_ = p.program.Process.Kill()
		<-p.ended
		cancel()
		_ = os.RemoveAll(dir)
	})
	p.conn = p.dial(layout.LauncherSocket)
	p.lines = bufio.NewScanner(p.conn)
	if m := p.read(); m.Hello == nil {
		t.Fatalf("virt-launcher begins with %+v", m)
	}
	return p
}

func (p *pod) path(inContainer string) string { return p.inPod(inContainer) }

// inPod replaces the image's paths by those of the test, also where that was done before.
func (p *pod) inPod(text string) string {
	text = strings.ReplaceAll(text, layout.PrivateDir, p.dir+"/kubevirt")
	firmware := shipped.File(p.t, firmwareDir)
	text = strings.ReplaceAll(strings.ReplaceAll(text, firmware, firmwareDir), firmwareDir, firmware)
	return strings.ReplaceAll(text, layout.VolumeDevicesDir, p.dir+"/dev-kubevirt-volumes")
}

func (p *pod) dial(name string) net.Conn {
	p.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := net.Dial("unix", filepath.Join(p.path(layout.PrivateDir), name))
		if err == nil {
			p.t.Cleanup(func() { _ = conn.Close() })
			return conn
		}
		select {
		case <-tick.C:
		case <-p.ctx.Done():
			p.t.Fatalf("connecting to %s: %v", name, err)
		}
	}
}

func (p *pod) read() launch.Message {
	p.t.Helper()
	_ = p.conn.SetReadDeadline(time.Now().Add(life)) // the guest may have to boot before it ends
	if !p.lines.Scan() {
		p.t.Fatalf("reading from virt-launcher: %v", p.lines.Err())
	}
	var m launch.Message
	if err := json.Unmarshal(p.lines.Bytes(), &m); err != nil {
		p.t.Fatal(err)
	}
	return m
}

func (p *pod) ask(request launch.Request) launch.Reply {
	p.t.Helper()
	line, err := json.Marshal(request)
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.conn.Write(append([]byte(p.inPod(string(line))), '\n')); err != nil {
		p.t.Fatal(err)
	}
	m := p.read()
	if m.Reply == nil || m.Reply.Error != "" {
		p.t.Fatalf("virt-launcher answers %+v", m.Reply)
	}
	return *m.Reply
}

// grace is longer than any test waits, so that a slow guest is not taken for a deaf one.
const grace = int64(2 * life / time.Second)

// boot plays virt-handler: it prepares disks and images, builds the machine and has it started. The network is QEMU's
// own, so that the test needs no rights.
func (p *pod) boot(vmi *v1.VirtualMachineInstance) {
	p.t.Helper()
	p.start(vmi, "")
}

// start starts a guest, or a machine that waits for the guest of a migration.
func (p *pod) start(vmi *v1.VirtualMachineInstance, incoming types.UID) {
	p.t.Helper()
	in := machine.Input{VMI: vmi, Images: make(map[string]launch.PreparedImage), NICs: make(map[string]machine.NIC), Now: time.Now(),
		KVM: accelerator.Of(p.t) == bootprobe.KVM, Incoming: incoming}
	p.makeDisks(vmi)
	for _, image := range p.ask(launch.Request{Prepare: &launch.Prepare{Images: machine.Images(vmi)}}).Images {
		in.Images[image.Name] = image
	}
	for _, iface := range vmi.Spec.Domain.Devices.Interfaces {
		in.NICs[iface.Name] = machine.NIC{Tap: "none", MTU: 1400}
	}
	m, err := machine.Build(in)
	if err != nil {
		p.t.Fatalf("building the machine: %v", err)
	}
	for i, netdev := range m.Netdevs {
		m.Netdevs[i] = machine.Properties{"type": "user", "id": netdev["id"]}
	}
	began := time.Now()
	reply := p.ask(launch.Request{Start: &launch.Start{Args: m.Args(), GracePeriodSeconds: grace,
		Incoming: incoming != "", TPM: machine.TPM(&vmi.Spec, layout.FirstTPM, ""), Shares: machine.Shares(vmi),
		DownwardMetrics: machine.DownwardMetrics(&vmi.Spec, nodeName)}})
	if reply.State.Phase != launch.PhaseRunning {
		p.t.Fatalf("QEMU is %s", reply.State.Phase)
	}
	p.t.Logf("QEMU answers after %d ms", time.Since(began).Milliseconds())
	p.console = console.New(p.dial(layout.SerialSocket))
	if p.monitor, err = qmp.New(p.ctx, p.dial(layout.QMPSocket), nil); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = p.monitor.Close() })
}

// makeDisks does virt-handler's part of making the disks.
func (p *pod) makeDisks(vmi *v1.VirtualMachineInstance) {
	p.t.Helper()
	plan, err := disk.NewPlan(vmi)
	if err != nil {
		p.t.Fatal(err)
	}
	// This folder stands for the container's /var/run.
	if err := os.MkdirAll(filepath.Join(p.dir, "var"), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Symlink("..", filepath.Join(p.dir, "var", "run")); err != nil && !errors.Is(err, os.ErrExist) {
		p.t.Fatal(err)
	}
	root, err := podpath.OpenRoot(p.dir)
	if err != nil {
		p.t.Fatal(err)
	}
	defer root.Close()
	plan.Raws, plan.State = nil, nil // the tests bring disks and state
	if err := plan.Apply(p.ctx, disk.Pod{Root: root, User: os.Getuid()}); err != nil {
		p.t.Fatal(err)
	}
}

// login waits until the guest is up.
func (p *pod) login() {
	p.t.Helper()
	if err := p.console.Login(p.ctx); err != nil {
		p.t.Fatalf("logging in: %v", err)
	}
}

// Devices appear a moment late, so the command may run many times.
func (p *pod) prints(command, want string) {
	p.t.Helper()
	last := "nothing"
	for {
		got, status, err := p.console.Run(p.ctx, command)
		if err != nil {
			p.t.Fatalf("%s: %v; it printed before\n%s\nwant\n%s", command, err, last, want)
		}
		if status == 0 && got == want {
			return
		}
		last = fmt.Sprintf("%s\nwith exit status %d", got, status)
		select {
		case <-p.ctx.Done():
		case <-time.After(50 * time.Millisecond): // the guest does not announce new devices
		}
	}
}

func (p *pod) says(command string) string {
	p.t.Helper()
	got, status, err := p.console.Run(p.ctx, command)
	if err != nil || status != 0 {
		p.t.Fatalf("%s: exit status %d, %v; it printed %s", command, status, err, got)
	}
	return got
}

func (p *pod) send(command string) {
	p.t.Helper()
	if err := p.console.Send(command + "\n"); err != nil {
		p.t.Fatal(err)
	}
}

// powersOff powers the guest off.
func (p *pod) powersOff() {
	p.t.Helper()
	p.send("poweroff")
	p.exits(launch.ReasonGuestShutdown)
}

// exits waits for QEMU's end.
func (p *pod) exits(want launch.Reason) {
	p.t.Helper()
	m := p.read()
	if m.Event == nil || m.Event.Exited == nil {
		p.t.Fatalf("virt-launcher says %+v", m)
	}
	if got := *m.Event.Exited; got.Reason != want {
		p.t.Errorf("the guest ended with %+v, want %s", got, want)
	}
	<-p.ended
	if code := p.program.ProcessState.ExitCode(); (code != 0) != want.Failed() {
		p.t.Errorf("virt-launcher's exit code is %d", code)
	}
}

func (p *pod) place(source, inContainer string) {
	p.t.Helper()
	target := p.path(inContainer)
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Link(source, target); err != nil {
		if text, err := os.ReadFile(source); err != nil || os.WriteFile(target, text, 0o600) != nil {
			p.t.Fatalf("copying %s to %s", source, target)
		}
	}
}

// blank makes a raw disk of zeroes.
func (p *pod) blank(inContainer string, size int64) {
	p.t.Helper()
	target := p.path(inContainer)
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(target, nil, 0o600); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Truncate(target, size); err != nil {
		p.t.Fatal(err)
	}
}

func parse(t *testing.T, text string) *v1.VirtualMachineInstance {
	t.Helper()
	vmi := &v1.VirtualMachineInstance{}
	if err := yaml.UnmarshalStrict([]byte(text), vmi); err != nil {
		t.Fatal(err)
	}
	return vmi
}
