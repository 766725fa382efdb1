package machine_test

import (
	"encoding/base64"
	"strconv"
	"strings"
	"testing"
	"time"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/launcher/downwardmetrics/metricstest"
	"drydock.dev/drydock/test/guest"
)

const metricsVMI = `
metadata: {name: metrics, namespace: default}
spec:
  domain:
    firmware:
      uuid: ` + uuid + `
      kernelBoot:
        kernelArgs: console=ttyS0 quiet no_timer_check
        container: {image: test-guest-kernel, kernelPath: /boot/vmlinuz, initrdPath: /boot/initrd.img}
    cpu: {cores: 2}
    memory: {guest: 160Mi}
    devices:
      autoattachGraphicsDevice: false
      downwardMetrics: {}
      disks: [{name: figures, disk: {bus: virtio}}]
  volumes: [{name: figures, downwardMetrics: {}}]
`

const findPort = `p=/dev/$(basename $(dirname $(grep -lx org.github.vhostmd.1 /sys/class/virtio-ports/*/name)))`

func TestAGuestIsToldOfItsHost(t *testing.T) {
	files := buildGuest(t, guest.Lean)
	p := newPod(t)
	p.place(files.Kernel, layout.KernelBootDir+"/boot/vmlinuz")
	p.place(files.Initrd, layout.KernelBootDir+"/boot/initrd.img")
	p.boot(parse(t, metricsVMI))
	p.login()
	p.prints("head -c 4 /dev/vda", "mvbd")
	p.prints("cat /sys/block/vda/ro /sys/block/vda/size", "1\n512")
	first := p.figuresOnDisk()
	p.isTold(first)
	p.isTold(p.figuresByPort())
	// The guest works while it answers the test, and the host's clock goes on.
	for deadline := time.Now().Add(patience); !later(t, p.figuresOnDisk(), first); {
		if time.Now().After(deadline) {
			t.Fatal("the disk is not written again")
		}
	}
	// The first figures may be older than the guest.
	if worked, err := strconv.ParseFloat(p.figuresByPort()["vm TotalCPUTime"].Value, 64); err != nil || worked <= 0 {
		t.Errorf("the guest, which has booted, has worked for %v s, %v", worked, err)
	}
	// An invalid request gets an answer, and the next request is served; a guest that floods the port does not get
	// endless answers.
	p.prints(findPort+`; exec 3<>$p; printf 'what?\n\n' >&3; head -n 1 <&3; exec 3>&-`, "INVALID REQUEST")
	p.says(findPort + `; (timeout 3 dd if=/dev/zero of=$p bs=64k; true) 2>/dev/null`)
	p.prints(findPort+`; exec 3<>$p; printf 'what?\n\n' >&3; while read -r line <&3 && [ "$line" != "INVALID REQUEST" ]; do :; done; exec 3>&-`, "")
	p.isTold(p.figuresByPort())
	p.powersOff()
}

// figuresOnDisk reads the disk as vhostmd's tools do, and repeats while it is busy, or was written meanwhile.
func (p *pod) figuresOnDisk() map[string]metricstest.Metric {
	p.t.Helper()
	for began := time.Now(); ; {
		image, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(p.says("head -c 8192 /dev/vda | base64"), "\n", ""))
		if err != nil {
			p.t.Fatal(err)
		}
		document, err := metricstest.Disk(image)
		if err == nil {
			return p.figures(document)
		}
		if time.Since(began) > patience {
			p.t.Fatal(err)
		}
	}
}

// An empty line ends the answer.
func (p *pod) figuresByPort() map[string]metricstest.Metric {
	p.t.Helper()
	return p.figures([]byte(p.says(findPort + `; exec 3<>$p; printf 'GET /metrics/XML\n\n' >&3; while read -r line <&3 && [ -n "$line" ]; do echo "$line"; done; exec 3>&-`)))
}

func (p *pod) figures(document []byte) map[string]metricstest.Metric {
	p.t.Helper()
	figures, err := metricstest.Document(document)
	if err != nil {
		p.t.Fatalf("%v in\n%s", err, document)
	}
	return figures
}

// isTold compares the figures with the machine.
func (p *pod) isTold(figures map[string]metricstest.Metric) {
	p.t.Helper()
	for name, want := range map[string]string{
		"host HostName": nodeName, "host VirtualizationVendor": "kubevirt.io",
		"vm ResourceProcessorLimit": "2",
	} {
		if got := figures[name].Value; got != want {
			p.t.Errorf("the guest is told that %s is %q, want %q", name, got, want)
		}
	}
	// An emulated guest has a little more than it requested (decision 302).
	if has, err := strconv.Atoi(figures["vm ResourceMemoryLimit"].Value); err != nil || has < 160<<10 || has >= 161<<10 {
		p.t.Errorf("the guest, which has 160 MiB, is told that it has %d KiB, %v", has, err)
	}
	if len(figures) < len(metricstest.Names())-1 { // a machine may not report its processors
		p.t.Errorf("the guest is told %d figures: %v", len(figures), figures)
	}
}

func later(t *testing.T, now, before map[string]metricstest.Metric) bool {
	t.Helper()
	was, err := strconv.ParseInt(before["host Time"].Value, 10, 64)
	is, errNow := strconv.ParseInt(now["host Time"].Value, 10, 64)
	if err != nil || errNow != nil {
		t.Fatal(err, errNow)
	}
	return is > was
}
