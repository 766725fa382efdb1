package subresource

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/maintenance"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

// maintained is a VM with one disk on a claim.
func maintained(strategy v1.VirtualMachineRunStrategy, holder string) *v1.VirtualMachine {
	vm := machine(strategy)
	vm.Namespace = "lab"
	vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{Spec: v1.VirtualMachineInstanceSpec{Volumes: []v1.Volume{
		{Name: "root", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "root-claim"}}},
		{Name: "image", VolumeSource: v1.VolumeSource{ContainerDisk: &v1.ContainerDiskSource{Image: "i"}}},
	}}}
	if holder != "" {
		vm.Labels = map[string]string{layout.MaintenanceLabel: holder}
	}
	return vm
}

// waiting is a maintenance pod that was created at a second.
func waiting(name string, second int64) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "lab", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.Unix(second, 0),
		Labels: map[string]string{layout.MaintenanceForLabel: "vm-cirros"},
	}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
}

func told(name, phase, node string, second int64, deleting bool) maintenance.Pod {
	return maintenance.Pod{
		Name: name, UID: "uid-" + name, Phase: phase, Node: node, Since: time.Unix(second, 0).UTC().Format(time.RFC3339), Deleting: deleting,
	}
}

func TestTheQueueOfAVM(t *testing.T) {
	running, ended, going := waiting("b", 5), waiting("e", 1), waiting("g", 1)
	running.Status.Phase, running.Spec.NodeName = corev1.PodRunning, "node1"
	ended.Status.Phase = corev1.PodSucceeded
	going.DeletionTimestamp = &metav1.Time{Time: time.Unix(9, 0)}
	leaving := running.DeepCopy()
	leaving.DeletionTimestamp = going.DeletionTimestamp
	unknown := maintained(v1.RunStrategyHalted, "")
	unknown.Spec.RunStrategy = nil
	const locked = "the disks of VM vm-cirros are locked for the pod b"
	for name, test := range map[string]struct {
		vm   *v1.VirtualMachine
		vmi  *v1.VirtualMachineInstance
		pods []corev1.Pod
		want maintenance.State
	}{
		"nobody": {vm: maintained(v1.RunStrategyHalted, "")},
		"a holder, and two in the order of their creation": {
			vm: maintained(v1.RunStrategyHalted, "b"), pods: []corev1.Pod{*waiting("d", 7), *ended, *going, *running, *waiting("c", 6)},
			want: maintenance.State{
				Holder: new(told("b", "Running", "node1", 5, false)), Message: locked,
				Queue: []maintenance.Pod{told("c", "Pending", "", 6, false), told("d", "Pending", "", 7, false)},
			},
		},
		"of one second": {
			vm: maintained(v1.RunStrategyHalted, ""), pods: []corev1.Pod{*waiting("d", 6), *waiting("c", 6)},
			want: maintenance.State{Queue: []maintenance.Pod{told("c", "Pending", "", 6, false), told("d", "Pending", "", 6, false)}},
		},
		"a holder that goes":   {vm: maintained(v1.RunStrategyHalted, "b"), pods: []corev1.Pod{*leaving}, want: maintenance.State{Holder: new(told("b", "Running", "node1", 5, true)), Message: locked}},
		"a holder that's gone": {vm: maintained(v1.RunStrategyHalted, "b"), want: maintenance.State{Holder: &maintenance.Pod{Name: "b"}, Message: locked}},
		"a VM that runs":       {vm: maintained(v1.RunStrategyAlways, ""), vmi: instance(v1.Running), want: maintenance.State{Message: "the run strategy of VM vm-cirros is Always: stop it, so that it is Halted"}},
		"a VM that stops":      {vm: maintained(v1.RunStrategyHalted, ""), vmi: instance(v1.Running), want: maintenance.State{Message: "the guest of VM vm-cirros has not ended"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Queue(test.vm, test.vmi, test.pods)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWhichPodIsReleased(t *testing.T) {
	pods := []corev1.Pod{*waiting("a", 1), *waiting("b", 2)}
	for name, test := range map[string]struct {
		holder, asked, want, err string
	}{
		"the holder":             {holder: "b", want: "b"},
		"one that waits":         {holder: "b", asked: "a", want: "a"},
		"one before a lock":      {asked: "a", want: "a"},
		"nobody":                 {err: refusal("the VM is not locked for maintenance")},
		"another VM's":           {holder: "b", asked: "x", err: `pods "x" not found`},
		"one that's gone":        {holder: "c", err: refusal("the pod c, which the disks are locked for, was deleted by force: the lock goes when it can no longer write; an administrator who knows that it can't may release by force")},
		"one that's gone, named": {holder: "c", asked: "c", err: refusal("the pod c, which the disks are locked for, was deleted by force: the lock goes when it can no longer write; an administrator who knows that it can't may release by force")},
	} {
		t.Run(name, func(t *testing.T) {
			pod, err := ToRelease(maintained(v1.RunStrategyHalted, test.holder), pods, test.asked)
			switch {
			case test.err != "":
				if err == nil || err.Error() != test.err {
					t.Errorf("got %v", err)
				}
			case err != nil || pod.Name != test.want:
				t.Errorf("got %v, %v", pod, err)
			}
		})
	}
}

// lab serves the subresource over an in-memory cluster, in which ann has the listed rights.
type lab struct {
	server  *Server
	cluster client.Client
	asked   []string
	// The in-memory cluster can't store the VMI: it knows no uint64.
	patched *v1.VirtualMachineInstance
}

func newLab(t *testing.T, may string, objects ...client.Object) *lab {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := v1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	l := &lab{}
	l.cluster = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			if vmi, is := object.(*v1.VirtualMachineInstance); is {
				l.patched = vmi
				return nil
			}
			return c.Patch(ctx, object, patch, options...)
		},

		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			review, is := object.(*authorizationv1.SubjectAccessReview)
			if !is {
				return c.Create(ctx, object, options...)
			}
			a := review.Spec.ResourceAttributes
			what := a.Verb + " " + a.Group + " " + a.Resource + "/" + a.Subresource + " in " + a.Namespace
			l.asked = append(l.asked, review.Spec.User+" "+strings.Join(review.Spec.Groups, ",")+" "+strings.Join(review.Spec.Extra["scope"], ",")+": "+what)
			review.Status.Allowed = strings.Contains(may, what)
			return nil
		},
	}).Build()
	l.server = New(l.cluster, nil, Maintenance{Settings: func() clusterconfig.Settings { return clusterconfig.Settings{} }, Image: "tools:1"})
	return l
}

// call is a request of ann's, and its answer: a state, or a sentence.
func (l *lab) call(t *testing.T, method, query, body string) (maintenance.State, string) {
	t.Helper()
	return l.callOf(t, "virtualmachines/vm-cirros", method, query, body)
}

func (l *lab) callOf(t *testing.T, machine, method, query, body string) (maintenance.State, string) {
	t.Helper()
	path := Root + "v1/namespaces/lab/" + machine + "/maintenance" + query
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	ann := &user.DefaultInfo{Name: "ann", Groups: []string{"dev"}, Extra: map[string][]string{"scope": {"all"}}}
	w := httptest.NewRecorder()
	l.server.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), ann)))
	state, status := maintenance.State{}, metav1.Status{}
	if w.Code != http.StatusOK {
		if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil {
			t.Fatal(err)
		}
		return state, status.Message
	}
	if err := json.Unmarshal(w.Body.Bytes(), &state); err != nil {
		t.Fatal(err)
	}
	return state, ""
}

func (l *lab) pods(t *testing.T) []string {
	t.Helper()
	list := &corev1.PodList{}
	if err := l.cluster.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, pod := range list.Items {
		names = append(names, pod.Name)
	}
	return names
}

const mayAll = "create  pods/ in lab; delete  pods/ in lab"

func rootClaim() *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "root-claim"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"}}
}

func TestAMaintenancePodIsMade(t *testing.T) {
	l := newLab(t, mayAll, maintained(v1.RunStrategyHalted, ""), rootClaim(), waiting("earlier", 1))
	state, refused := l.call(t, http.MethodPost, "", `{"command":["sh"],"readOnly":true}`)
	if refused != "" || state.Created == nil {
		t.Fatalf("got %+v, %s", state, refused)
	}
	if want := []string{"ann dev all: create  pods/ in lab"}; !cmp.Equal(l.asked, want) {
		t.Errorf("asked %q", l.asked)
	}
	pod := &corev1.Pod{}
	if err := l.cluster.Get(t.Context(), client.ObjectKey{Namespace: "lab", Name: state.Created.Name}, pod); err != nil {
		t.Fatal(err)
	}
	c := pod.Spec.Containers[0]
	if c.Image != "tools:1" || !cmp.Equal(c.Command, []string{"sh"}) || !c.VolumeMounts[0].ReadOnly || pod.Labels[layout.MaintenanceForLabel] != "vm-cirros" {
		t.Errorf("got %+v", pod)
	}
	if len(state.Queue) != 2 {
		t.Errorf("the queue is %+v", state.Queue)
	}
	if state, refused := l.call(t, http.MethodPost, "", `{"dryRun":["All"]}`); refused != "" || state.Created == nil || len(l.pods(t)) != 2 {
		t.Errorf("a dry run: %+v, %s, %v", state, refused, l.pods(t))
	}
}

func TestWhatIsRefusedMakesNoPod(t *testing.T) {
	going := maintained(v1.RunStrategyHalted, "")
	templated := maintained(v1.RunStrategyHalted, "")
	templated.Spec.DataVolumeTemplates = []v1.DataVolumeTemplateSpec{{ObjectMeta: metav1.ObjectMeta{Name: "root-claim"}}}
	going.DeletionTimestamp, going.Finalizers = &metav1.Time{Time: time.Unix(9, 0)}, []string{"x"}
	for name, test := range map[string]struct {
		may, body string
		objects   []client.Object
		want      string
	}{
		"a caller who may not": {body: `{}`, objects: []client.Object{maintained(v1.RunStrategyHalted, ""), rootClaim()},
			want: `pods is forbidden: user "ann" may not create pods in namespace "lab", as a maintenance pod needs`},
		"no such VM":            {may: mayAll, body: `{}`, want: `virtualmachines.kubevirt.io "vm-cirros" not found`},
		"a VM that goes":        {may: mayAll, body: `{}`, objects: []client.Object{going, rootClaim()}, want: refusal("the VM is being deleted")},
		"an unknown disk":       {may: mayAll, body: `{"disks":["x"]}`, objects: []client.Object{maintained(v1.RunStrategyHalted, ""), rootClaim()}, want: refusal(`the VM has no volume "x"; on claims are: root`)},
		"a missing claim":       {may: mayAll, objects: []client.Object{maintained(v1.RunStrategyHalted, "")}, want: refusal("PVC root-claim, which the VM's disk is to be on, does not exist")},
		"a claim to come":       {may: mayAll, objects: []client.Object{templated}, want: refusal("PVC root-claim, which the VM's disk is to be on, does not exist yet: a DataVolume of the VM makes it")},
		"an unknown field":      {may: mayAll, body: `{"disk":"x"}`, want: `decoding the request's body: json: unknown field "disk"`},
		"a deadline below zero": {may: mayAll, body: `{"deadlineSeconds":-1}`, want: "deadlineSeconds is -1; it must not be negative"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, test.may, test.objects...)
			if _, refused := l.call(t, http.MethodPost, "", test.body); refused != test.want {
				t.Errorf("got %s", refused)
			}
			if pods := l.pods(t); len(pods) > 0 {
				t.Errorf("made %v", pods)
			}
		})
	}
}

func TestAReleaseDeletesOnePod(t *testing.T) {
	l := newLab(t, mayAll, maintained(v1.RunStrategyHalted, "a"), waiting("a", 1), waiting("b", 2), waiting("c", 3))
	if _, refused := l.call(t, http.MethodDelete, "", `{"dryRun":["All"]}`); refused != "" || len(l.pods(t)) != 3 {
		t.Errorf("a dry run: %s, %v", refused, l.pods(t))
	}
	if _, refused := l.call(t, http.MethodDelete, "?pod=b", ""); refused != "" || !cmp.Equal(l.pods(t), []string{"a", "c"}) {
		t.Errorf("one that waits: %s, %v", refused, l.pods(t))
	}
	if _, refused := l.call(t, http.MethodDelete, "", ""); refused != "" || !cmp.Equal(l.pods(t), []string{"c"}) {
		t.Errorf("the holder: %s, %v", refused, l.pods(t))
	}
	stranger := newLab(t, "create  pods/ in lab", maintained(v1.RunStrategyHalted, "a"), waiting("a", 1))
	_, refused := stranger.call(t, http.MethodDelete, "", "")
	if refused != `pods is forbidden: user "ann" may not delete pods in namespace "lab", which a release is` || len(stranger.pods(t)) != 1 {
		t.Errorf("without the right: %s", refused)
	}
}

func TestAReleaseByForceNeedsItsOwnRightAndIsRecorded(t *testing.T) {
	const mayForce = "update " + v1.SubresourceGroupName + " virtualmachines/maintenance-force in lab"
	locked := func() *v1.VirtualMachine {
		vm := maintained(v1.RunStrategyHalted, "a")
		vm.Annotations = map[string]string{layout.MaintenanceUIDAnnotation: "uid-a"}
		return vm
	}
	for name, test := range map[string]struct {
		may, query, want string
		vm               *v1.VirtualMachine
		by               string
	}{
		"with the right":      {may: mayForce, query: "?force=true", vm: locked(), by: "ann"},
		"with the pod's name": {may: mayForce, query: "?force=true&pod=a", vm: locked(), by: "ann"},
		"of another pod":      {may: mayForce, query: "?force=true&pod=b", vm: locked(), want: refusal("the disks are locked for the pod a, not for b: one that waits is released without force")},
		"of nothing":          {may: mayForce, query: "?force=true", vm: maintained(v1.RunStrategyHalted, ""), want: refusal("the VM is not locked for maintenance")},
		"a word":              {may: mayForce, query: "?force=yes", vm: locked(), want: `force is "yes"; it must be true or false`},
		"without the right": {may: mayAll, query: "?force=true", vm: locked(), want: `virtualmachines/maintenance-force.subresources.kubevirt.io "vm-cirros" is forbidden: ` +
			`user "ann" may not update virtualmachines/maintenance-force in namespace "lab", which a release by force needs: ask an administrator, or release without force`},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, test.may, test.vm, waiting("a", 1))
			if _, refused := l.call(t, http.MethodDelete, test.query, ""); refused != test.want {
				t.Errorf("got %s", refused)
			}
			vm := &v1.VirtualMachine{}
			if err := l.cluster.Get(t.Context(), client.ObjectKeyFromObject(test.vm), vm); err != nil {
				t.Fatal(err)
			}
			if got := vm.Annotations[layout.MaintenanceReleaseByAnnotation]; got != test.by {
				t.Errorf("by %q", got)
			}
			if got := vm.Annotations[layout.MaintenanceReleaseAnnotation]; (got == "uid-a") != (test.by != "") {
				t.Errorf("for %q", got)
			}
			// Only virt-controller deletes the pod.
			if len(l.pods(t)) != 1 {
				t.Error("the pod is gone")
			}
		})
	}
}

func TestWhoHasTheDisksIsTold(t *testing.T) {
	other := waiting("x", 1)
	other.Labels[layout.MaintenanceForLabel] = "another"
	l := newLab(t, "", maintained(v1.RunStrategyHalted, "a"), waiting("a", 1), waiting("b", 2), other)
	state, refused := l.call(t, http.MethodGet, "", "")
	if refused != "" || state.Holder == nil || state.Holder.Name != "a" || len(state.Queue) != 1 || state.Queue[0].Name != "b" || l.asked != nil {
		t.Errorf("got %+v, %s, %v", state, refused, l.asked)
	}
}

// TestAVMIWithoutAVMIsReleasedByForce: it must need a right of its own, and a VMI of a VM must be refused.
func TestAVMIWithoutAVMIsReleasedByForce(t *testing.T) {
	const mayForce = "update " + v1.SubresourceGroupName + " virtualmachineinstances/maintenance-force in lab"
	lone := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "lone",
		Labels: map[string]string{layout.MaintenanceLabel: "a"}, Annotations: map[string]string{layout.MaintenanceUIDAnnotation: "uid-a"}}}
	owned := lone.DeepCopy()
	owned.Name, owned.OwnerReferences = "owned", []metav1.OwnerReference{{Kind: "VirtualMachine", Name: "owned", Controller: new(true)}}
	pod := waiting("a", 1)
	pod.Labels[layout.MaintenanceForLabel] = "lone"
	l := newLab(t, mayForce, lone, owned, pod)
	state, refused := l.callOf(t, "virtualmachineinstances/lone", http.MethodDelete, "?force=true", "")
	vmi := l.patched
	if refused != "" || vmi == nil || vmi.Annotations[layout.MaintenanceReleaseAnnotation] != "uid-a" || vmi.Annotations[layout.MaintenanceReleaseByAnnotation] != "ann" {
		t.Errorf("with the right: %s, %v", refused, vmi.Annotations)
	}
	if state.Message != "the disks of VMI lone are locked for the pod a" {
		t.Errorf("it says %q", state.Message)
	}
	if _, refused = l.callOf(t, "virtualmachineinstances/owned", http.MethodGet, "", ""); !strings.Contains(refused, "the VMI belongs to the VirtualMachine owned") {
		t.Errorf("one of a VM: %q", refused)
	}
	stranger := newLab(t, mayAll, lone, pod)
	if _, refused = stranger.callOf(t, "virtualmachineinstances/lone", http.MethodDelete, "?force=true", ""); !strings.Contains(refused, "may not update virtualmachineinstances/maintenance-force") {
		t.Errorf("without the right: %q", refused)
	}
}
