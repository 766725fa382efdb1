package hotplug

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

// Pods take time to start, and the guest takes and releases its disks at once.
type cluster struct {
	Observed
	now    time.Time
	starts time.Duration
	made   int
}

// second advances the clock by one second.
func (c *cluster) second() {
	c.now = c.now.Add(time.Second)
	for i := range c.Pods {
		p := &c.Pods[i]
		p.Running = p.Running || c.now.Sub(p.Created) >= c.starts
	}
	c.Live = true
	for range 10 {
		plan := decided(c.Observed)
		c.Entries, c.Record = plan.Entries, plan.Record
		for _, h := range plan.Create {
			c.made++
			c.Pods = append(c.Pods, Pod{Name: h.Name, UID: types.UID(h.Name), Created: c.now, Volumes: h.Volumes})
		}
		for _, gone := range plan.Delete {
			c.Pods = slices.DeleteFunc(c.Pods, func(p Pod) bool { return p.UID == gone.UID })
		}
		c.handle()
	}
}

// handle plays virt-handler and the guest.
func (c *cluster) handle() {
	for i := range c.Entries {
		e := &c.Entries[i]
		wanted := slices.ContainsFunc(c.Wanted, func(w Wanted) bool { return w.Volume == e.Volume })
		switch {
		case !wanted && (InUse(e.Phase) || e.Phase == v1.HotplugVolumeAttachedToNode):
			e.Phase = v1.HotplugVolumeUnMounted
		case wanted && e.Phase == v1.HotplugVolumeAttachedToNode:
			e.Phase = v1.VolumeReady
		}
		for j := range c.Pods {
			if p := &c.Pods[j]; e.Phase == v1.VolumeReady && p.Running && p.Holds(e.Volume) && c.Record.Names(p.Name) {
				e.PodName, e.PodUID = p.Name, p.UID
			}
		}
	}
}

// toggle adds an unwanted volume, and removes a wanted one.
func (c *cluster) toggle(name string) {
	before := len(c.Wanted)
	c.Wanted = slices.DeleteFunc(slices.Clone(c.Wanted), func(w Wanted) bool { return w.Name == name })
	if len(c.Wanted) == before {
		c.Wanted = append(c.Wanted, want(name)...)
	}
}

func (c *cluster) expectAllReady(t *testing.T) {
	t.Helper()
	if len(c.Entries) != len(c.Wanted) {
		t.Errorf("%d volumes are wanted, the status has %d", len(c.Wanted), len(c.Entries))
	}
	for _, e := range c.Entries {
		if e.Phase != v1.VolumeReady {
			t.Errorf("volume %s is %s", e.Name, e.Phase)
		}
	}
}

func TestAChangeEverySecondStarvesNobodyAndMakesFewPods(t *testing.T) {
	c := cluster{Observed: Observed{Prefix: "hp", MaxAttachmentPods: 4, Budget: Budget{State: BudgetRight}}, now: time.Unix(0, 0), starts: 3 * time.Second}
	names := []string{"a", "b", "c", "d", "e", "f", "g"}
	waits := map[string]int{}
	for second := range 60 {
		c.toggle(names[second*3%len(names)])
		c.second()
		for _, w := range c.Wanted {
			waits[w.Name]++
		}
		for _, e := range c.Entries {
			if e.Phase == v1.VolumeReady {
				waits[e.Name] = 0
			}
		}
		for name, n := range waits {
			if n > 8 {
				t.Fatalf("in second %d volume %s has waited for %d seconds", second, name, n)
			}
		}
		if len(c.Pods) > 2*len(names) {
			t.Fatalf("in second %d there are %d pods for at most %d volumes", second, len(c.Pods), len(names))
		}
	}
	for range 10 {
		c.second()
	}
	c.expectAllReady(t)
	t.Logf("60 changes made %d pods, %d are left", c.made, len(c.Pods))
	if c.made > 60 {
		t.Errorf("60 changes made %d pods", c.made)
	}
}

func TestManyVolumesAtOnceShareAPod(t *testing.T) {
	c := cluster{Observed: Observed{Prefix: "hp", MaxAttachmentPods: 4, Budget: Budget{State: BudgetRight}}, now: time.Unix(0, 0), starts: 3 * time.Second}
	for i := range 64 {
		c.toggle(string(rune('A' + i)))
	}
	for range 5 {
		c.second()
	}
	c.expectAllReady(t)
	if c.made != 1 {
		t.Errorf("64 volumes that were added at once made %d pods", c.made)
	}
}

func TestVolumesOneByOneComeToRestInFewPods(t *testing.T) {
	c := cluster{Observed: Observed{Prefix: "hp", MaxAttachmentPods: 4, Budget: Budget{State: BudgetRight}}, now: time.Unix(0, 0), starts: 3 * time.Second}
	for i := range 64 {
		c.toggle(string(rune('A' + i)))
		c.second()
	}
	for range 10 {
		c.second()
	}
	c.Settled = true
	for range 30 {
		c.second()
	}
	c.expectAllReady(t)
	t.Logf("64 volumes one by one made %d pods, %d are left", c.made, len(c.Pods))
	if len(c.Pods) > c.MaxAttachmentPods {
		t.Errorf("%d pods are left, at most %d should be", len(c.Pods), c.MaxAttachmentPods)
	}
}
