package cpupinning

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/vcpus"
)

func TestCPUs(t *testing.T) {
	for name, test := range map[string]struct {
		cpu  v1.CPU
		even bool
		want int64
	}{
		"one for each virtual CPU":               {cpu: v1.CPU{Sockets: 2, Cores: 2, Threads: 2}, want: 8},
		"one more for QEMU":                      {cpu: v1.CPU{Cores: 2, IsolateEmulatorThread: true}, want: 3},
		"an even number":                         {cpu: v1.CPU{Cores: 2, IsolateEmulatorThread: true}, even: true, want: 4},
		"an even number without another":         {cpu: v1.CPU{Cores: 3, IsolateEmulatorThread: true}, even: true, want: 4},
		"an odd number, since none is for QEMU":  {cpu: v1.CPU{Cores: 3}, even: true, want: 3},
		"a guest that does not say its topology": {want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &v1.VirtualMachineInstanceSpec{Domain: v1.DomainSpec{CPU: &test.cpu}}
			if got := CPUs(spec, test.even); got != test.want {
				t.Errorf("got %d CPUs, want %d", got, test.want)
			}
		})
	}
}

func TestPlace(t *testing.T) {
	// A node with two packages of two cores with two threads: Linux numbers the second threads last.
	node := []HostCPU{{0, 0, 0}, {1, 0, 1}, {2, 1, 0}, {3, 1, 1}, {4, 0, 0}, {5, 0, 1}, {6, 1, 0}, {7, 1, 1}}
	four := vcpus.List{{Index: 3, Thread: 103}, {Index: 0, Thread: 100}, {Index: 2, Thread: 102}, {Index: 1, Thread: 101}}
	for name, test := range map[string]struct {
		vcpus   vcpus.List
		has     []HostCPU
		own     int64 // if not as many as it has
		isolate bool
		want    Placement
		fails   string
	}{
		"siblings become siblings": {vcpus: four, has: []HostCPU{node[5], node[0], node[4], node[1]},
			want: Placement{Threads: map[int][]int{100: {0}, 101: {4}, 102: {1}, 103: {5}}, Others: []int{0, 1, 4, 5}}},
		"the rest is QEMU's": {vcpus: four[:2], has: []HostCPU{node[6], node[2], node[3], node[7]}, isolate: true,
			want: Placement{Threads: map[int][]int{100: {2}, 103: {6}}, Others: []int{3, 7}}},
		// The node reserves CPU 4, so that the kubelet has only the other thread of its core to give away.
		"a lone thread of a core is QEMU's": {vcpus: four[:2], has: []HostCPU{node[0], node[1], node[5]}, isolate: true,
			want: Placement{Threads: map[int][]int{100: {1}, 103: {5}}, Others: []int{0}}},
		"a lone thread of a core separates no siblings": {vcpus: four[:3], has: []HostCPU{node[0], node[1], node[5]},
			want: Placement{Threads: map[int][]int{100: {1}, 102: {5}, 103: {0}}, Others: []int{0, 1, 5}}},
		"cores of two packages have equal numbers": {vcpus: four[:2], has: []HostCPU{node[0], node[2], node[6]}, isolate: true,
			want: Placement{Threads: map[int][]int{100: {2}, 103: {6}}, Others: []int{0}}},
		"virtual CPUs that share a thread share their CPUs": {vcpus: vcpus.List{{Index: 0, Thread: 9}, {Index: 1, Thread: 9}}, has: node[6:],
			want: Placement{Threads: map[int][]int{9: {6, 7}}, Others: []int{6, 7}}},
		"too few CPUs": {vcpus: four, has: node[:3], want: Placement{Others: []int{0, 1, 2}},
			fails: "the pod has 3 CPUs of its node, but the guest needs 4 for itself: they are not pinned"},
		"none is left for QEMU": {vcpus: four, has: node[:4], isolate: true, want: Placement{Others: []int{0, 1, 2, 3}},
			fails: "the pod has 4 CPUs of its node, but the guest needs 5 for itself: they are not pinned"},
		"CPUs of all": {vcpus: four, has: node, own: 4, want: Placement{Others: []int{0, 1, 2, 3, 4, 5, 6, 7}},
			fails: "the pod has 8 CPUs of its node, but has asked for 4, so others use them, too: they are not pinned. " +
				"Check that the node's kubelet has cpuManagerPolicy: static, and restart or migrate the guest"},
		"none": {vcpus: four[:1], fails: "the pod has 0 CPUs of its node, but the guest needs 1 for itself: they are not pinned"},
	} {
		t.Run(name, func(t *testing.T) {
			guest := Guest{VCPUs: test.vcpus, Own: test.own, Isolate: test.isolate}
			if guest.Own == 0 {
				guest.Own = int64(len(test.has))
			}
			got, err := Place(guest, test.has)
			if err != nil && err.Error() != test.fails || err == nil && test.fails != "" {
				t.Fatalf("got the error %v, want %q", err, test.fails)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
