package hotplug

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

// comes returns a record's pods at the target of migration m.
func comes(pods ...AttachmentPod) *Incoming { return &Incoming{Migration: "m", Pods: pods} }

// elsewhere puts a pod on a node other than the guest's; left means that nothing of the guest is there.
func elsewhere(p Pod, left bool) Pod {
	p.Elsewhere, p.Left = true, left
	return p
}

// toldMove formats a plan with the record of the target of a migration.
func toldMove(p Plan) string {
	out := told(p)
	if in := p.Record.Incoming; in != nil {
		for _, h := range in.Pods {
			var names []string
			for _, v := range h.Volumes {
				names = append(names, v.Name)
			}
			out += fmt.Sprintf("; to %s: %s{%s}%s", in.Migration, h.Name, strings.Join(names, " "), h.UID)
		}
	}
	return out
}

func TestVolumesAreHeldAtTheTargetFirst(t *testing.T) {
	const ready = v1.VolumeReady
	under, arrived, over := Move{Migration: "m", UnderWay: true}, Move{Migration: "m", Arrived: true}, Move{Migration: "m"}
	ends := elsewhere(runs(2, "a"), false)
	ends.Terminating = true
	// one is a guest with volume a, held by hp-1 on its node.
	one := func(move Move, edit func(*Observed)) Observed {
		o := Observed{
			Stage: Active, Move: move, Wanted: want("a"), Entries: []Entry{through(1, ready, "a")},
			Record: Record{Generation: 2, Pods: []AttachmentPod{noted(held(1, "a"))}}, Pods: []Pod{runs(1, "a")},
		}
		if move.UnderWay {
			o.Stage = Moving
		}
		edit(&o)
		return o
	}
	for name, test := range map[string]struct {
		o    Observed
		want string
	}{
		"what the guest has is recorded at the target": {
			one(under, func(*Observed) {}), "a=a Ready hp-1; hp-1{a}; to m: hp-3{a}"},
		"what waits for its claim, or its pod, is not": {
			one(under, func(o *Observed) {
				o.Wanted = want("a", "b")
				o.Entries = append(o.Entries, through(0, v1.VolumeBound, "b"))
			}), "a=a Ready hp-1; b=b Bound; hp-1{a}; to m: hp-3{a}"},
		"a guest without plugged volumes needs nothing there": {
			one(under, func(o *Observed) { o.Entries, o.Record.Pods = nil, nil }), ""},
		"what is recorded is made": {
			one(under, func(o *Observed) { o.Record.Incoming = comes(held(2, "a")) }), "a=a Ready hp-1; hp-1{a}; make hp-2; to m: hp-2{a}"},
		"what runs there is noted": {
			one(under, func(o *Observed) {
				o.Record.Incoming, o.Pods = comes(held(2, "a")), append(o.Pods, elsewhere(runs(2, "a"), false))
			}), "a=a Ready hp-1; hp-1{a}; to m: hp-2{a}u2"},
		"then nothing is to be done": {
			one(under, func(o *Observed) {
				o.Record.Incoming, o.Pods = comes(noted(held(2, "a"))), append(o.Pods, elsewhere(runs(2, "a"), false))
			}), "a=a Ready hp-1; hp-1{a}; to m: hp-2{a}u2"},
		"one that is taken away there is replaced": {
			one(under, func(o *Observed) { o.Record.Incoming, o.Pods = comes(noted(held(2, "a"))), append(o.Pods, ends) }),
			"a=a Ready hp-1; hp-1{a}; to m: hp-3{a}"},
		"one that a cache does not show is asked for": {
			one(under, func(o *Observed) { o.Record.Incoming = comes(noted(held(2, "a"))) }), "a=a Ready hp-1; hp-1{a}; ask; to m: hp-2{a}u2"},
		"one that is gone is replaced": {
			one(under, func(o *Observed) { o.Record.Incoming, o.Live = comes(noted(held(2, "a"))), true }), "a=a Ready hp-1; hp-1{a}; to m: hp-3{a}"},
		"nothing else changes meanwhile, whatever is wanted": {
			one(under, func(o *Observed) {
				o.Wanted, o.Record.Incoming, o.Pods = want("b"), comes(noted(held(2, "a"))), append(o.Pods, elsewhere(runs(2, "a"), false))
			}), "a=a Ready hp-1; hp-1{a}; to m: hp-2{a}u2"},
		"what an earlier migration has recorded is none of this one's": {
			one(under, func(o *Observed) {
				o.Record.Incoming = &Incoming{Migration: "before", Pods: []AttachmentPod{noted(held(2, "a"))}}
			}), "a=a Ready hp-1; hp-1{a}; to m: hp-3{a}"},
		"of a guest that has arrived they are among the others": {
			one(arrived, func(o *Observed) {
				o.Record.Incoming, o.Pods = comes(noted(held(2, "a"))), []Pod{elsewhere(runs(1, "a"), false), runs(2, "a")}
			}), "a=a Ready hp-1; hp-1{a}; hp-2{a}"},
		"when the status names them, those at the source are dropped": {
			one(arrived, func(o *Observed) {
				o.Entries = []Entry{through(2, ready, "a")}
				o.Record.Pods = append(o.Record.Pods, noted(held(2, "a")))
				o.Pods = []Pod{elsewhere(runs(1, "a"), false), runs(2, "a")}
			}), "a=a Ready hp-2; hp-2{a}"},
		"they stay while the source's launcher pod may run": {
			one(arrived, func(o *Observed) {
				o.Live, o.Entries, o.Record.Pods = true, []Entry{through(2, ready, "a")}, []AttachmentPod{noted(held(2, "a"))}
				o.Pods = []Pod{elsewhere(runs(1, "a"), false), runs(2, "a")}
			}), "a=a Ready hp-2; hp-2{a}"},
		"they are deleted when it has ended": {
			one(arrived, func(o *Observed) {
				o.Live, o.Entries, o.Record.Pods = true, []Entry{through(2, ready, "a")}, []AttachmentPod{noted(held(2, "a"))}
				o.Pods = []Pod{elsewhere(runs(1, "a"), true), runs(2, "a")}
			}), "a=a Ready hp-2; hp-2{a}; delete hp-1"},
		"a pod where the guest is does not go for one that is elsewhere": {
			one(arrived, func(o *Observed) {
				o.Live, o.Record.Pods = true, []AttachmentPod{noted(held(1, "a")), noted(held(3, "a"))}
				o.Pods = []Pod{elsewhere(runs(1, "a"), true), runs(2, "a"), runs(3, "a")}
			}), "a=a Ready hp-1; hp-1{a}; hp-3{a}"},
		"a record that was spoiled when the guest had arrived is made anew": {
			one(arrived, func(o *Observed) { o.Record, o.Pods = Record{}, []Pod{elsewhere(runs(1, "a"), false), runs(2, "a")} }),
			"a=a Ready hp-1; hp-3{a}"},
		"of a migration that has failed they are dropped": {
			one(over, func(o *Observed) {
				o.Record.Incoming, o.Pods = comes(noted(held(2, "a"))), append(o.Pods, elsewhere(runs(2, "a"), true))
			}), "a=a Ready hp-1; hp-1{a}"},
		"and stay while the target's launcher pod may run": {
			one(over, func(o *Observed) { o.Live, o.Pods = true, append(o.Pods, elsewhere(runs(2, "a"), false)) }), "a=a Ready hp-1; hp-1{a}"},
		"and are deleted then": {
			one(over, func(o *Observed) { o.Live, o.Pods = true, append(o.Pods, elsewhere(runs(2, "a"), true)) }), "a=a Ready hp-1; hp-1{a}; delete hp-2"},
		"a volume that waits does not come from where the guest has been": {
			one(arrived, func(o *Observed) {
				o.Entries, o.Pods = []Entry{through(0, v1.VolumeBound, "a")}, []Pod{elsewhere(runs(1, "a"), false)}
			}), "a=a Bound; hp-3{a}"},
	} {
		t.Run(name, func(t *testing.T) {
			test.o.Prefix, test.o.Budget.State, test.o.MaxAttachmentPods = "hp", BudgetRight, 4
			if got := toldMove(decided(test.o)); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// migrating is a VMI with volume a, with its record and its migration.
func migrating(record Record, state *v1.VirtualMachineInstanceMigrationState, entries ...Entry) *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
	if text := record.Text(); text != "" {
		vmi.Annotations[RecordAnnotation] = text
	}
	vmi.Spec.Volumes = []v1.Volume{{Name: "a", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "a", Hotpluggable: true}}}}
	for _, e := range entries {
		vmi.Status.VolumeStatus = append(vmi.Status.VolumeStatus, v1.VolumeStatus{
			Name: e.Name, Phase: e.Phase, HotplugVolume: &v1.HotplugVolumeStatus{AttachPodName: e.PodName, AttachPodUID: e.PodUID},
			PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: e.Claim},
		})
	}
	vmi.Status.NodeName, vmi.Status.MigrationState = "node1", state
	return vmi
}

func TestWhenVolumesAreAtRest(t *testing.T) {
	const changing = "its hotplugged volumes (%s) are being plugged or unplugged"
	spoiled := migrating(Record{}, nil)
	spoiled.Annotations[RecordAnnotation] = "{"
	fixedFirst := migrating(Record{}, nil, through(1, v1.HotplugVolumeDetaching, "b"))
	fixedFirst.Status.VolumeStatus = append([]v1.VolumeStatus{{Name: "root"}}, fixedFirst.Status.VolumeStatus...)
	for name, test := range map[string]struct {
		vmi  *v1.VirtualMachineInstance
		want string
	}{
		"no volumes":                                         {&v1.VirtualMachineInstance{}, ""},
		"a volume that the guest has":                        {migrating(Record{}, nil, through(1, v1.VolumeReady, "a")), ""},
		"one that waits for its pod":                         {migrating(Record{}, nil, through(0, v1.VolumeBound, "a")), ""},
		"one that is out":                                    {migrating(Record{}, nil, through(1, v1.HotplugVolumeUnMounted, "b")), ""},
		"one that comes":                                     {migrating(Record{}, nil, through(1, v1.HotplugVolumeAttachedToNode, "a")), fmt.Sprintf(changing, "a")},
		"one that QEMU is about to get":                      {migrating(Record{}, nil, through(1, v1.HotplugVolumeMounted, "a")), fmt.Sprintf(changing, "a")},
		"one that goes":                                      {migrating(Record{}, nil, through(1, v1.HotplugVolumeDetaching, "b")), fmt.Sprintf(changing, "b")},
		"one that nobody wants":                              {migrating(Record{}, nil, through(1, v1.VolumeReady, "b")), fmt.Sprintf(changing, "b")},
		"one that is wanted on another claim":                {migrating(Record{}, nil, through(1, v1.VolumeReady, "a=x")), fmt.Sprintf(changing, "a")},
		"what an earlier migration has left, a pod":          {migrating(Record{Incoming: comes(held(2, "a"))}, nil), "the attachment pods of its last migration are not in order yet"},
		"as many as are named":                               {migrating(Record{}, nil, changed("b", "c", "d", "e", "f")...), fmt.Sprintf(changing, "b, c, d, e, f")},
		"one that goes, after a disk that was never plugged": {fixedFirst, fmt.Sprintf(changing, "b")},
		"many of them":                                       {migrating(Record{}, nil, changed("b", "c", "d", "e", "f", "g")...), fmt.Sprintf(changing, "b, c, d, e, f and 1 more")},
		"a record that somebody has made unreadable":         {spoiled, "the attachment pods of its hotplugged volumes are recorded anew: reading the annotation drydock.dev/attachment-pods: unexpected end of JSON input"},
	} {
		got := ""
		if err := AtRest(test.vmi); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func changed(names ...string) (list []Entry) {
	for _, name := range names {
		list = append(list, through(1, v1.HotplugVolumeDetaching, name))
	}
	return list
}

func TestWhatIsThereWhenAGuestArrives(t *testing.T) {
	under := &v1.VirtualMachineInstanceMigrationState{MigrationUID: "m", TargetNode: "node2"}
	has := through(1, v1.VolumeReady, "a")
	two := Record{Incoming: comes(noted(held(2, "a")))}
	ends := runs(2, "a")
	ends.Terminating = true
	for name, test := range map[string]struct {
		record     Record
		pods       []Pod
		missing    string
		unattached string
		expected   string
	}{
		"nothing is recorded":           {Record{}, nil, "a", "a", ""},
		"a pod that is not there":       {two, nil, "a", "", ""},
		"a pod that is not noted":       {Record{Incoming: comes(held(2, "a"))}, []Pod{runs(2, "a")}, "a", "a", "hp-2"},
		"a pod that starts":             {two, []Pod{starts(2, "a")}, "a", "", ""},
		"a pod that ends":               {two, []Pod{ends}, "a", "", ""},
		"a pod of another UID":          {Record{Incoming: comes(AttachmentPod{Name: "hp-2", UID: "x", Volumes: vol("a")})}, []Pod{runs(2, "a")}, "a", "", ""},
		"a pod of another migration":    {Record{Incoming: &Incoming{Migration: "x", Pods: two.Incoming.Pods}}, []Pod{runs(2, "a")}, "a", "a", ""},
		"a pod of the source's record":  {Record{Pods: two.Incoming.Pods}, []Pod{runs(2, "a")}, "a", "a", ""},
		"a pod that has another volume": {two, []Pod{runs(2, "b")}, "a", "", ""},
		"a pod that runs":               {two, []Pod{runs(2, "a")}, "", "", ""},
	} {
		vmi := migrating(test.record, under, has, through(0, v1.VolumeBound, "b"))
		if _, missing := Arrivals(vmi, test.pods); strings.Join(missing, " ") != test.missing {
			t.Errorf("%s: missing is %v, want %q", name, missing, test.missing)
		}
		if got := Unattached(vmi); got != test.unattached {
			t.Errorf("%s: not attached is %q, want %q", name, got, test.unattached)
		}
		if got := Expected(vmi); got != test.expected {
			t.Errorf("%s: pod %q is expected, want %q", name, got, test.expected)
		}
	}
}

// TestARecordForWhoeverUsesIt: pods at a migration's target must be used from the guest's arrival on, and not before.
func TestARecordForWhoeverUsesIt(t *testing.T) {
	type state = v1.VirtualMachineInstanceMigrationState
	for name, test := range map[string]struct {
		state *state
		want  string
	}{
		"a guest that never migrated":           {nil, "hp-1"},
		"one under way":                         {&state{MigrationUID: "m", TargetNode: "node1"}, "hp-1 to hp-2"},
		"one that runs there, and says nothing": {&state{MigrationUID: "m", TargetNode: "node2", Completed: true}, "hp-1 to hp-2"},
		"one that has arrived":                  {&state{MigrationUID: "m", TargetNode: "node1", Completed: true}, "hp-1 hp-2"},
		"one whose migration has failed":        {&state{MigrationUID: "m", TargetNode: "node2", Failed: true}, "hp-1"},
		"one of another migration":              {&state{MigrationUID: "x", TargetNode: "node1", Completed: true}, "hp-1"},
	} {
		record, err := RecordOf(migrating(Record{Generation: 2, Pods: []AttachmentPod{held(1, "a")}, Incoming: comes(held(2, "a"))}, test.state))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, h := range record.Pods {
			names = append(names, h.Name)
		}
		if record.Incoming != nil {
			names = append(names, "to", record.Incoming.Pods[0].Name)
		}
		if got := strings.Join(names, " "); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
		if record.Incoming != nil && record.Has("hp-2", types.UID("")) {
			t.Errorf("%s: the pod at the target may be used already", name)
		}
	}
}
