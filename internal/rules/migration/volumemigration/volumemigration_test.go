package volumemigration

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/rules/storage/placement"
)

func pvc(name string) v1.VolumeSource {
	return v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
		PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}
}

func dv(name string) v1.VolumeSource {
	return v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: name}}
}

func readOnly(s v1.VolumeSource) v1.VolumeSource {
	s.PersistentVolumeClaim.ReadOnly = true
	return s
}

func plugged(s v1.VolumeSource) v1.VolumeSource {
	s.PersistentVolumeClaim.Hotpluggable = true
	return s
}

func below(name string) v1.VolumeSource {
	return v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}
}

var empty = v1.VolumeSource{EmptyDisk: &v1.EmptyDiskSource{}}

// spec has the volumes root, data and scratch, and a disk for each.
func spec(root, data v1.VolumeSource) *v1.VirtualMachineInstanceSpec {
	s := &v1.VirtualMachineInstanceSpec{Volumes: []v1.Volume{
		{Name: "root", VolumeSource: root}, {Name: "data", VolumeSource: data}, {Name: "scratch", VolumeSource: empty},
	}}
	for _, v := range s.Volumes {
		s.Domain.Devices.Disks = append(s.Domain.Devices.Disks, v1.Disk{Name: v.Name, DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{}}})
	}
	return s
}

// shareFolder makes the disk of that index a folder that the guest shares.
func shareFolder(s *v1.VirtualMachineInstanceSpec, i int) {
	s.Domain.Devices.Filesystems = []v1.Filesystem{{Name: s.Domain.Devices.Disks[i].Name, Virtiofs: &v1.FilesystemVirtiofs{}}}
	s.Domain.Devices.Disks = slices.Delete(s.Domain.Devices.Disks, i, i+1)
}

func TestWhichChangesAreMigrations(t *testing.T) {
	disk := func(edit func(*v1.Disk)) func(*v1.VirtualMachineInstanceSpec) {
		return func(s *v1.VirtualMachineInstanceSpec) { edit(&s.Domain.Devices.Disks[0]) }
	}
	without := func(s *v1.VirtualMachineInstanceSpec) { s.Domain.Devices.Disks = s.Domain.Devices.Disks[1:] }
	toFolder := spec(pvc("c"), dv("b"))
	shareFolder(toFolder, 0)
	for name, test := range map[string]struct {
		from, to *v1.VirtualMachineInstanceSpec
		edit     func(*v1.VirtualMachineInstanceSpec)
		want     string
	}{
		"none":                      {from: spec(pvc("a"), dv("b")), to: spec(pvc("a"), dv("b"))},
		"a claim by its DataVolume": {from: spec(pvc("a"), dv("b")), to: spec(dv("a"), pvc("b"))},
		"one":                       {from: spec(pvc("a"), dv("b")), to: spec(pvc("c"), dv("b")), want: "root from a to c"},
		"the second one":            {from: spec(pvc("a"), dv("b")), to: spec(pvc("a"), dv("d")), want: "data from b to d"},
		"one behind one that was":   {from: spec(plugged(pvc("a")), dv("b")), to: spec(pvc("c"), dv("d")), want: "data from b to d"},
		"both, of either kind":      {from: spec(pvc("a"), dv("b")), to: spec(dv("c"), pvc("d")), want: "root from a to c, data from b to d"},
		"a volume that is new":      {from: &v1.VirtualMachineInstanceSpec{}, to: spec(pvc("a"), dv("b"))},
		"one that was hotplugged":   {from: spec(plugged(pvc("a")), dv("b")), to: spec(pvc("c"), dv("b"))},
		"one that will be":          {from: spec(pvc("a"), dv("b")), to: spec(plugged(pvc("c")), dv("b"))},
		"from what is no claim": {from: spec(empty, dv("b")), to: spec(pvc("a"), dv("c")),
			want: "volume root can't be migrated: only a persistentVolumeClaim or a dataVolume can be migrated, and to one of these"},
		"to what is no claim": {from: spec(pvc("a"), dv("b")), to: spec(empty, dv("b")),
			want: "volume root can't be migrated: only a persistentVolumeClaim or a dataVolume can be migrated, and to one of these"},
		"to what is below an overlay": {from: spec(pvc("a"), dv("b")), to: spec(below("c"), dv("b")),
			want: "volume root can't be migrated: only a persistentVolumeClaim or a dataVolume can be migrated, and to one of these"},
		"what is only read":            {from: spec(readOnly(pvc("a")), dv("b")), to: spec(pvc("c"), dv("b")), want: "volume root can't be migrated: its claim is only read"},
		"what is only read from there": {from: spec(pvc("a"), dv("b")), to: spec(readOnly(pvc("c")), dv("b")), want: "volume root can't be migrated: its claim is only read"},
		"two change places": {from: spec(pvc("a"), dv("b")), to: spec(pvc("b"), dv("a")),
			want: "volume root can't be migrated: volume data is on the claim b; volume data can't be migrated: volume root is on the claim a"},
		"one takes the other's place": {from: spec(pvc("a"), dv("b")), to: spec(pvc("b"), dv("c")), want: "volume root can't be migrated: volume data is on the claim b"},
		"two to one": {from: spec(pvc("a"), dv("b")), to: spec(pvc("c"), dv("c")),
			want: "volume root can't be migrated: volume data is to be on the claim c as well; volume data can't be migrated: volume root is to be on the claim c as well"},
		"a cdrom": {from: spec(pvc("a"), dv("b")), to: spec(pvc("c"), dv("d")), edit: disk(func(d *v1.Disk) { d.CDRom, d.Disk = &v1.CDRomTarget{}, nil }),
			want: "volume root can't be migrated: it is in a cdrom"},
		"a lun": {from: spec(pvc("a"), dv("b")), to: spec(pvc("c"), dv("b")), edit: disk(func(d *v1.Disk) { d.LUN, d.Disk = &v1.LunTarget{}, nil }),
			want: "volume root can't be migrated: it is a lun, which the guest gives commands to that are not copied"},
		"a shareable disk": {from: spec(pvc("a"), dv("b")), to: spec(pvc("c"), dv("b")), edit: disk(func(d *v1.Disk) { d.Shareable = new(true) }),
			want: "volume root can't be migrated: its disk is shareable, and other guests may write to it"},
		"one that is expressly not": {from: spec(pvc("a"), dv("b")), to: spec(pvc("c"), dv("b")), edit: disk(func(d *v1.Disk) { d.Shareable = new(false) }),
			want: "root from a to c"},
		"a disk without a target": {from: spec(pvc("a"), dv("b")), to: spec(pvc("c"), dv("b")), edit: disk(func(d *v1.Disk) { d.Disk = nil }), want: "root from a to c"},
		"a read-only disk": {from: spec(pvc("a"), dv("b")), to: spec(pvc("c"), dv("b")), edit: disk(func(d *v1.Disk) { d.Disk.ReadOnly = true }),
			want: "volume root can't be migrated: its disk is read-only"},
		"to a folder": {from: spec(pvc("a"), dv("b")), to: toFolder,
			want: "volume root can't be migrated: the guest is to share it as a folder (spec.domain.devices.filesystems)"},
		"no disk": {from: spec(pvc("a"), dv("b")), to: spec(pvc("c"), dv("b")), edit: without, want: "volume root can't be migrated: it has no disk"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.edit != nil {
				test.edit(test.from)
			}
			moves, refusals := Compare(&v1.VirtualMachineInstance{Spec: *test.from}, test.to)
			if len(moves) > 0 && len(refusals) > 0 {
				t.Errorf("some are moved (%v) although others can't be", moves)
			}
			if got := Text(moves) + strings.Join(refusals, "; "); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

// moving is a VMI whose disks must be copied.
func moving(moves ...Move) *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{Spec: *spec(pvc("a"), dv("b"))}
	vmi.Status.MigratedVolumes = Write(moves)
	return vmi
}

var rootMove, dataMove = Move{"root", "a", "c"}, Move{"data", "b", "d"}

func TestTheTargetIsOnTheNewClaims(t *testing.T) {
	vmi := moving(rootMove, dataMove)
	if got := Of(vmi); !slices.Equal(got, []Move{rootMove, dataMove}) {
		t.Errorf("the moves are %v", got)
	}
	target := Target(vmi)
	if diff := cmp.Diff(spec(pvc("c"), dv("d")), &target.Spec); diff != "" {
		t.Errorf("the target differs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(spec(pvc("a"), dv("b")), &vmi.Spec); diff != "" {
		t.Errorf("the VMI itself has changed:\n%s", diff)
	}
	if still := moving(); Target(still) != still {
		t.Error("a VMI without moves is another one at its target")
	}
}

// TestWhatIsNotOfTheVMIMovesNothing: a status that does not fit the spec must be ignored.
func TestWhatIsNotOfTheVMIMovesNothing(t *testing.T) {
	half := Write([]Move{rootMove})
	half[0].DestinationPVCInfo = nil
	other := Write([]Move{rootMove})
	other[0].SourcePVCInfo = nil
	for name, list := range map[string][]v1.StorageMigratedVolumeInfo{
		"another claim":   Write([]Move{{"root", "b", "c"}}),
		"another volume":  Write([]Move{{"boot", "a", "c"}}),
		"no claim at all": Write([]Move{{"scratch", "", "c"}}),
		"to no claim":     Write([]Move{{"root", "a", ""}}),
		"no destination":  half,
		"no source":       other,
	} {
		t.Run(name, func(t *testing.T) {
			vmi := moving()
			vmi.Status.MigratedVolumes = list
			if got := Of(vmi); len(got) > 0 {
				t.Errorf("it moves %v", got)
			}
		})
	}
	if got := Arrive(spec(pvc("a"), dv("b")), []Move{{"root", "x", "c"}}); !cmp.Equal(got, *spec(pvc("a"), dv("b"))) {
		t.Error("a disk arrives that was somewhere else")
	}
}

func TestATargetPodMustHaveTheClaims(t *testing.T) {
	pod := func(root, data string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
		for name, claim := range map[string]string{"vol-root": root, "vol-data": data} {
			v := corev1.Volume{Name: name}
			if claim != "" {
				v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}
			}
			p.Spec.Volumes = append(p.Spec.Volumes, v)
		}
		return p
	}
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		vmi  *v1.VirtualMachineInstance
		want string
	}{
		"nothing moves":      {pod("a", "b"), moving(), ""},
		"both move":          {pod("c", "d"), moving(rootMove, dataMove), ""},
		"one moves":          {pod("a", "d"), moving(dataMove), ""},
		"it was made before": {pod("a", "b"), moving(dataMove), `the target pod p has volume data on the claim "b", and the VMI wants it on "d" by now`},
		"it was taken back":  {pod("c", "b"), moving(), `the target pod p has volume root on the claim "c", and the VMI wants it on "a" by now`},
		"it has no claim":    {pod("a", ""), moving(), `the target pod p has volume data on the claim "", and the VMI wants it on "b" by now`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := WrongClaims(test.pod, test.vmi); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
	vmi := moving()
	vmi.Spec.Volumes[1].VolumeSource = plugged(pvc("b"))
	if got := WrongClaims(pod("a", ""), vmi); got != "" {
		t.Errorf("a plugged volume is missed: %s", got)
	}
	behind := moving(dataMove)
	behind.Spec.Volumes[0].VolumeSource = plugged(pvc("a"))
	if got := WrongClaims(pod("", "b"), behind); !strings.Contains(got, "volume data") {
		t.Errorf("a volume behind a plugged one is not missed: %q", got)
	}
}

func TestTheRecordOfAVM(t *testing.T) {
	gone, both := (*v1.VirtualMachineInstance)(nil), []Move{rootMove, dataMove}
	arrived := moving()
	arrived.Spec = *spec(pvc("c"), dv("d"))
	for name, test := range map[string]struct {
		recorded []Move
		vmi      *v1.VirtualMachineInstance
		template *v1.VirtualMachineInstanceSpec
		want     []Move
	}{
		"nothing is recorded":                  {nil, moving(both...), spec(pvc("c"), dv("d")), []Move{}},
		"the VMI has not heard of it":          {both, moving(), spec(pvc("c"), dv("d")), both},
		"the disks are copied":                 {both, moving(both...), spec(pvc("c"), dv("d")), both},
		"the guest has arrived":                {both, arrived, spec(pvc("c"), dv("d")), []Move{}},
		"it is taken back, and still going on": {both, moving(both...), spec(pvc("a"), dv("b")), both},
		"it is taken back":                     {both, moving(), spec(pvc("a"), dv("b")), []Move{}},
		"one is taken back":                    {both, moving(), spec(pvc("a"), dv("d")), []Move{dataMove}},
		"the VMI is gone":                      {both, gone, spec(pvc("c"), dv("d")), both},
		"it is gone, and the template is back": {both, gone, spec(pvc("a"), dv("b")), []Move{}},
		"it is gone, and one is back":          {both, gone, spec(pvc("c"), dv("b")), []Move{rootMove}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Unfinished(test.recorded, test.vmi, test.template); !slices.Equal(got, test.want) {
				t.Errorf("%v stays, want %v", got, test.want)
			}
		})
	}
}

func TestARecordIsWrittenOnce(t *testing.T) {
	status := &v1.VirtualMachineStatus{}
	if Record(status, nil); status.VolumeUpdateState != nil || Recorded(status) != nil {
		t.Errorf("a VM without moves has the record %+v", status.VolumeUpdateState)
	}
	Record(status, []Move{rootMove})
	written := status.VolumeUpdateState
	if got := Recorded(status); !slices.Equal(got, []Move{rootMove}) {
		t.Errorf("the record is %v", got)
	}
	if Record(status, []Move{rootMove}); status.VolumeUpdateState != written {
		t.Error("the same record is written again")
	}
	if Record(status, []Move{dataMove}); !slices.Equal(Recorded(status), []Move{dataMove}) {
		t.Errorf("the record is %v", Recorded(status))
	}
	if Record(status, nil); status.VolumeUpdateState != nil {
		t.Errorf("the record stays: %+v", status.VolumeUpdateState)
	}
	status.VolumeUpdateState = &v1.VolumeUpdateState{}
	if got := Recorded(status); got != nil {
		t.Errorf("a record of nothing is %v", got)
	}
	if Record(status, nil); status.VolumeUpdateState != nil {
		t.Error("a record of nothing stays")
	}
}

func TestWhatIsCovered(t *testing.T) {
	if !Covers([]Move{rootMove, dataMove}, []Move{dataMove}) || !Covers(nil, nil) || Covers([]Move{rootMove}, []Move{rootMove, dataMove}) {
		t.Error("the VMI would hear of it too early, or never")
	}
	if got := With([]Move{rootMove}, []Move{dataMove, rootMove}); !slices.Equal(got, []Move{rootMove, dataMove}) {
		t.Errorf("together they are %v", got)
	}
	if got, want := Recovery([]Move{rootMove}), "the migration of volumes was not completed before the VM stopped (root from a to c): what was copied may be incomplete; "+
		"have the template name the old claims again"; got != want {
		t.Errorf("%q", got)
	}
}

func TestByMigration(t *testing.T) {
	for strategy, want := range map[v1.UpdateVolumesStrategy]bool{v1.UpdateVolumesStrategyMigration: true, v1.UpdateVolumesStrategyReplacement: false} {
		if got := ByMigration(&v1.VirtualMachineSpec{UpdateVolumesStrategy: &strategy}); got != want {
			t.Errorf("%s: %v", strategy, got)
		}
	}
	if ByMigration(&v1.VirtualMachineSpec{}) {
		t.Error("volumes are migrated unasked")
	}
}

func TestWhatNeedsNoRestart(t *testing.T) {
	started := spec(pvc("a"), dv("b"))
	for name, test := range map[string]struct {
		running, wanted *v1.VirtualMachineInstanceSpec
		moves           []Move
		want            *v1.VirtualMachineInstanceSpec
	}{
		"it has arrived":                {spec(pvc("c"), dv("b")), spec(dv("c"), dv("b")), nil, spec(dv("c"), dv("b"))},
		"it is on its way":              {started, spec(pvc("c"), dv("b")), []Move{rootMove}, spec(pvc("c"), dv("b"))},
		"it is not brought there":       {started, spec(pvc("c"), dv("b")), nil, started},
		"it would be read only":         {started, spec(readOnly(pvc("a")), dv("b")), nil, started},
		"it was plugged":                {spec(plugged(pvc("a")), dv("b")), spec(pvc("a"), dv("b")), nil, started},
		"it is to be something else":    {spec(empty, dv("b")), spec(empty, dv("b")), nil, started},
		"the template does not have it": {started, &v1.VirtualMachineInstanceSpec{}, nil, started},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, WithMovedClaims(started, test.running, test.wanted, test.moves)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAVMINamesItsClaimsAsTheTemplateDoes(t *testing.T) {
	running := spec(dv("c"), dv("b"))
	if !Rename(running, spec(pvc("c"), dv("b"))) || !cmp.Equal(running, spec(pvc("c"), dv("b"))) {
		t.Errorf("the volumes are %+v", running.Volumes)
	}
	hot := dv("b")
	hot.DataVolume.Hotpluggable = true
	running.Volumes[1].VolumeSource = hot
	if !Rename(running, spec(pvc("c"), plugged(pvc("b")))) || !cmp.Equal(running, spec(pvc("c"), plugged(pvc("b")))) {
		t.Errorf("with one that is plugged in the volumes are %+v", running.Volumes)
	}
	if Rename(running, spec(readOnly(pvc("c")), pvc("b"))) {
		t.Errorf("what would not be the same is named: %+v", running.Volumes)
	}
	running.Volumes[1].VolumeSource = dv("b")
	if Rename(running, spec(pvc("c"), dv("e"))) || Rename(running, &v1.VirtualMachineInstanceSpec{Volumes: []v1.Volume{{Name: "new", VolumeSource: pvc("c")}}}) {
		t.Errorf("the volumes are %+v", running.Volumes)
	}
}

func TestWhichClaimsAreFit(t *testing.T) {
	const size = 1 << 20
	claim := func(bytes string) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{}
		c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(bytes)}
		return c
	}
	given := claim("2Mi")
	given.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1023Ki")}
	going := claim("2Mi")
	going.DeletionTimestamp = &metav1.Time{}
	filler := func(phase cdiv1.DataVolumePhase) *cdiv1.DataVolume {
		return &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Status: cdiv1.DataVolumeStatus{Phase: phase}}
	}
	const only, never = "before it is placed", "never"
	for name, test := range map[string]struct {
		d    Destination
		fits string
		want string
	}{
		"a claim":                              {Destination{Claim: placement.Claim{Claim: claim("1Mi")}}, "", ""},
		"none":                                 {Destination{}, never, "the PVC c does not exist"},
		"one that goes":                        {Destination{Claim: placement.Claim{Claim: going}}, never, "the PVC c is being deleted"},
		"one that another guest is on":         {Destination{Claim: placement.Claim{Claim: claim("1Mi")}, User: "the VMI other"}, never, "the PVC c is used by the VMI other"},
		"one that asks for too little":         {Destination{Claim: placement.Claim{Claim: claim("1023Ki")}}, never, "the PVC c has 1047552 bytes, and the disk has 1048576: name a larger one"},
		"one that was given too little":        {Destination{Claim: placement.Claim{Claim: given}}, never, "the PVC c has 1047552 bytes, and the disk has 1048576: name a larger one"},
		"a DataVolume that is filled":          {Destination{Claim: placement.Claim{Claim: claim("1Mi"), Source: "c", DataVolume: filler(cdiv1.Succeeded)}}, "", ""},
		"one that waits for its pod":           {Destination{Claim: placement.Claim{Claim: claim("1Mi"), Source: "c", DataVolume: filler(cdiv1.WaitForFirstConsumer)}}, only, "the DataVolume c is not filled: its phase is WaitForFirstConsumer"},
		"one that is being filled":             {Destination{Claim: placement.Claim{Claim: claim("1Mi"), Source: "c", DataVolume: filler(cdiv1.ImportInProgress)}}, never, "the DataVolume c is not filled: its phase is ImportInProgress"},
		"one that waits for an attachment pod": {Destination{Plugged: true, Claim: placement.Claim{Claim: claim("1Mi"), Source: "c", DataVolume: filler(cdiv1.WaitForFirstConsumer)}}, "", ""},
		"one that is being filled for one": {Destination{Plugged: true, Claim: placement.Claim{Claim: claim("1Mi"), Source: "c", DataVolume: filler(cdiv1.ImportInProgress)}},
			never, "the DataVolume c is not filled: its phase is ImportInProgress"},
		"one that does not exist": {Destination{Claim: placement.Claim{Source: "c"}}, never, "the DataVolume c does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			test.d.Move, test.d.Size = rootMove, size
			fit := Destination{Move: dataMove, Claim: placement.Claim{Claim: claim("1Mi")}}
			want := "volume root can't be copied yet: " + test.want
			for placed, fits := range map[bool]bool{false: test.fits != never, true: test.fits == ""} {
				if got := Unfit([]Destination{fit, test.d}, placed); fits && got != "" || !fits && got != want {
					t.Errorf("placed %v: %q", placed, got)
				}
			}
		})
	}
}

func TestWhatAVMISays(t *testing.T) {
	vmi := moving(rootMove)
	vmi.Status.VolumeStatus = []v1.VolumeStatus{{Name: "data", Size: 3}, {Name: "root", Size: 5}}
	if SizeOf(vmi, "root") != 5 || SizeOf(vmi, "scratch") != 0 {
		t.Error("the size of a disk is another's")
	}
	condition := v1.VirtualMachineInstanceCondition{
		Type: v1.VirtualMachineInstanceVolumesChange, Status: corev1.ConditionFalse, Reason: v1.VirtualMachineInstanceReasonVolumesChangeCancellation,
	}
	for name, test := range map[string]struct {
		edit func(*v1.VirtualMachineInstanceCondition)
		want bool
	}{
		"it is taken back": {func(*v1.VirtualMachineInstanceCondition) {}, true},
		"it goes on":       {func(c *v1.VirtualMachineInstanceCondition) { c.Status = corev1.ConditionTrue }, false},
		"another reason":   {func(c *v1.VirtualMachineInstanceCondition) { c.Reason = "" }, false},
		"another's":        {func(c *v1.VirtualMachineInstanceCondition) { c.Type = "Other" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := condition
			test.edit(&c)
			vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{c}
			if got := Canceled(vmi); got != test.want {
				t.Errorf("%v", got)
			}
		})
	}
	// It would stop every later migration.
	vmi.Status.Conditions, vmi.Status.MigratedVolumes = []v1.VirtualMachineInstanceCondition{condition}, nil
	if Canceled(vmi) {
		t.Error("volumes are taken back, and there are none")
	}
}

// The entries must say of both claims what is known, and nothing of a claim that the guest does not have.
func TestDescribe(t *testing.T) {
	block, rwo := corev1.PersistentVolumeBlock, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	vmi := &v1.VirtualMachineInstance{}
	vmi.Status.VolumeStatus = []v1.VolumeStatus{
		{Name: "root", PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "a", VolumeMode: &block}},
		{Name: "data", PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "other", VolumeMode: &block}},
	}
	claims := map[string]*corev1.PersistentVolumeClaim{"b": {ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: corev1.PersistentVolumeClaimSpec{AccessModes: rwo}}}
	moves := []Move{{"root", "a", "b"}, {"data", "c", "d"}}
	list := Write(moves)
	Describe(list, vmi, claims)
	want := []v1.StorageMigratedVolumeInfo{
		{VolumeName: "root", SourcePVCInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "a", VolumeMode: &block},
			DestinationPVCInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "b", AccessModes: rwo}},
		{VolumeName: "data", SourcePVCInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "c"}, DestinationPVCInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "d"}},
	}
	if !equality.Semantic.DeepEqual(list, want) || !slices.Equal(Read(list), moves) {
		t.Errorf("the entries are %+v", list)
	}
	if got := Missing(moves, claims); got != "d" {
		t.Errorf("the claim %q is missing", got)
	}
	if got := Missing(moves[:1], claims); got != "" {
		t.Errorf("the claim %q is missing, and exists", got)
	}
}
