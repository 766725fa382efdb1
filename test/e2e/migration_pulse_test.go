//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/test/pulse"
)

// withPulse gives a VM's guest a pulse, and a lease on the named disks (vda). Its QEMUs log their run states.
func withPulse(vm *v1.VirtualMachine, disks ...string) *v1.VirtualMachine {
	vm = withRunStates(vm)
	data := fmt.Sprintf("#cloud-config\nwrite_files: [{path: /etc/pulse, content: %q}]\n", vm.Name+" "+strings.Join(disks, " "))
	spec := &vm.Spec.Template.Spec
	for i := range spec.Volumes {
		if seed := spec.Volumes[i].CloudInitNoCloud; seed != nil {
			seed.UserData = data
			return vm
		}
	}
	spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, v1.Disk{Name: "seed", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}})
	spec.Volumes = append(spec.Volumes, v1.Volume{Name: "seed", VolumeSource: v1.VolumeSource{CloudInitNoCloud: &v1.CloudInitNoCloudSource{UserData: data}}})
	return vm
}

const (
	// askInterval is the time between two questions, and between two beats.
	askInterval = 250 * time.Millisecond
	answerTime  = 5 * time.Second
)

// pulses asks the guests of a namespace for their pulse, in all launcher pods, four times a second, and keeps the run
// states of their QEMUs.
type pulses struct {
	pulse.Record
	t      *testing.T
	ns     string
	asking sync.WaitGroup
	logs   launcherLogs // only find uses it

	mu   sync.Mutex
	pods map[netip.Addr]string
}

// The test fails at its end if two guests were seen.
func feelPulses(t *testing.T, ns string) *pulses {
	t.Helper()
	p := &pulses{t: t, ns: ns}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	p.asking.Go(func() { p.every(ctx, askInterval, p.find) })
	p.asking.Go(func() { p.every(ctx, askInterval, p.ask) })
	t.Cleanup(func() {
		cancel()
		p.asking.Wait()
		if err := p.Err(); err != nil {
			t.Error(err)
		}
		p.logs.check(t)
	})
	return p
}

func (p *pulses) every(ctx context.Context, interval time.Duration, do func(context.Context)) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		do(ctx)
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// awaitBeats waits until a guest's pulse has more beats than a number.
func (p *pulses) awaitBeats(t *testing.T, guest string, than uint64) pulse.Sighting {
	t.Helper()
	var last pulse.Sighting
	eventually(t, "a pulse of "+guest, func(context.Context) error {
		if last = p.Last(guest); last.Beats <= than {
			return fmt.Errorf("its last answer is %+v", last)
		}
		return nil
	})
	return last
}

// find lists the pods.
func (p *pulses) find(ctx context.Context) {
	var list corev1.PodList
	if err := cluster.client.List(ctx, &list, client.InNamespace(p.ns), client.MatchingLabels{v1.AppLabel: layout.LauncherApp}); err != nil {
		if ctx.Err() == nil {
			p.t.Logf("listing the pods to ask, which is tried again: %v", err)
		}
		return
	}
	p.logs.open(p.t, list.Items)
	pods := map[netip.Addr]string{}
	newest := map[netip.Addr]time.Time{}
	for i := range list.Items {
		pod := &list.Items[i]
		address, err := netip.ParseAddr(pod.Status.PodIP)
		if err != nil || newest[address].After(pod.CreationTimestamp.Time) {
			continue // no address yet, or another pod has reused it
		}
		pods[address], newest[address] = pod.Name, pod.CreationTimestamp.Time
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pods = pods
}

// ask asks each pod, from a new port each time: the kernel forwards packets of a known port as it did the first time,
// when the pod may have had no guest.
func (p *pulses) ask(ctx context.Context) {
	conn, err := net.ListenUDP("udp4", nil)
	if err == nil {
		err = conn.SetReadDeadline(time.Now().Add(answerTime))
	}
	if err != nil {
		p.t.Errorf("preparing to ask guests: %v", err)
		return
	}
	p.asking.Go(func() { p.listen(ctx, conn) })
	p.mu.Lock()
	defer p.mu.Unlock()
	for address := range p.pods {
		question := fmt.Sprint(p.Ask())
		// A pod that can't be reached is asked again.
		_, _ = conn.WriteToUDPAddrPort([]byte(question), netip.AddrPortFrom(address, pulse.Port))
	}
}

// listen reads the answers on a connection until answerTime is over.
func (p *pulses) listen(ctx context.Context, conn *net.UDPConn) {
	end := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer end()
	defer func() { _ = conn.Close() }()
	text := make([]byte, 1024)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(text)
		if err != nil {
			return // answerTime is over
		}
		answer, err := pulse.Parse(string(text[:n]))
		if err != nil {
			p.t.Errorf("from %v: %v", from, err)
			continue
		}
		p.mu.Lock()
		pod := p.pods[from.Addr().Unmap()]
		p.mu.Unlock()
		if pod != "" {
			p.Answered(pod, answer)
		}
	}
}
