//go:build apiserver

package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	v1 "kubevirt.io/api/core/v1"
	migrationsv1alpha1 "kubevirt.io/api/migrations/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/api/admission"
	"drydock.dev/drydock/internal/certs"
	"drydock.dev/drydock/internal/contracts/nodeapi"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

func quantity(text string) resource.Quantity { return resource.MustParse(text) }

func TestVirtAPI(t *testing.T) {
	w := start(t)
	t.Run("a new VM gets an identity and nothing else", w.newVM)
	t.Run("what is wrong is refused with all paths", w.wrongVM)
	t.Run("a guest's identity", w.identity)
	t.Run("a new VMI is completed", w.newVMI)
	t.Run("a VMI belongs to the components", w.changedVMI)
	t.Run("migrations, and policies for them, are admitted", w.migration)
	t.Run("a VM is migrated by a verb", w.migrate)
	t.Run("evictions of launcher pods are judged", w.evictions)
	t.Run("webhooks answer kube-apiserver and nobody else", w.forgedReviews)
	t.Run("metrics are for those who may read them", w.metrics)
	t.Run("examples are accepted", w.examples)
	t.Run("manifests as people write them get the verdict that they are to get", w.ours)
	t.Run("manifests of others are accepted", w.others)
	t.Run("instance types and preferences", w.instancetypes)
	t.Run("discovery and version", w.discovery)
	t.Run("deprecated versions mean the same", w.olderVersions)
	t.Run("kinds that are not served say what to do instead", w.notServed)
	t.Run("deprecated versions of snapshots and clones are judged", w.olderVersionsAreJudged)
	t.Run("quantities may be numbers", w.fractions)
	t.Run("OpenAPI tells about the subresources", w.openAPI)
	t.Run("start and stop", w.startAndStop)
	t.Run("verbs reach the guest's node", w.verbs)
	t.Run("volumes are plugged and unplugged", w.volumes)
	t.Run("a guest's memory is dumped", w.memoryDumps)
	t.Run("a VM clones what its writer may read", w.templates)
	t.Run("maintenance pods are made by a verb", w.maintenance)
	t.Run("a console is passed through", w.console)
	t.Run("who may do what", w.roles)
	t.Run("who may migrate", w.migrationRoles)
	t.Run("an image is uploaded", w.uploads)
	t.Run("a node has its own certificate and no other", w.nodeCertificates)
	t.Run("a lost certificate is made again", w.rotation)
	t.Run("objects go while virt-api is away", w.away)
	t.Run("what virt-api has approved is signed by the next", w.approvedBefore)
}

func (w *world) newVM(t *testing.T) {
	wanted := w.vm("new")
	created := wanted.DeepCopy()
	must(t, w.admin.Create(t.Context(), created))
	id, _, _ := unstructured.NestedString(created.Object, "spec", "template", "spec", "domain", "firmware", "uuid")
	if u, err := uuid.Parse(id); err != nil || u.Version() != 4 {
		t.Errorf("firmware UUID is %q, want a random one", id)
	}
	machine, _, _ := unstructured.NestedString(created.Object, "spec", "template", "spec", "domain", "machine", "type")
	if machine != clusterconfig.DefaultMachineType {
		t.Errorf("machine type is %q, want %q", machine, clusterconfig.DefaultMachineType)
	}
	unstructured.RemoveNestedField(created.Object, "spec", "template", "spec", "domain", "firmware")
	unstructured.RemoveNestedField(created.Object, "spec", "template", "spec", "domain", "machine")
	if diff := cmp.Diff(wanted.Object["spec"], created.Object["spec"]); diff != "" {
		t.Errorf("the spec was rewritten:\n%s", diff)
	}
	// A tool that keeps the manifest applies it again and again.
	must(t, w.admin.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(w.vm("new")),
		client.FieldOwner("gitops"), client.ForceOwnership))
	again := w.vm("new")
	must(t, w.admin.Get(t.Context(), client.ObjectKeyFromObject(again), again))
	if got, _, _ := unstructured.NestedString(again.Object, "spec", "template", "spec", "domain", "firmware", "uuid"); got != id {
		t.Errorf("after another apply the UUID is %q, was %q", got, id)
	}
}

func (w *world) wrongVM(t *testing.T) {
	vm := w.vm("wrong")
	devices := map[string]any{
		"gpus":  []any{map[string]any{"name": "gpu1", "deviceName": "example.com/gpu", "claimName": "card"}},
		"disks": []any{map[string]any{"name": "nowhere"}},
	}
	must(t, unstructured.SetNestedField(vm.Object, devices, "spec", "template", "spec", "domain", "devices"))
	err := w.admin.Create(t.Context(), vm)
	const want = `admission webhook "virtualmachine-validator.kubevirt.io" denied the request: ` +
		`spec.template.spec.domain.devices.gpus[0].claimName: not supported by Drydock: devices of claims don't get to guests; name a device plugin's resource in deviceName; ` +
		`spec.template.spec.domain.devices.disks[0].name: Invalid value: "nowhere": must be the name of a volume in spec.volumes`
	if sentence(err) != want {
		t.Errorf("answer is\n%s\nwant\n%s", sentence(err), want)
	}
	if !apierrors.IsInvalid(err) {
		t.Errorf("reason is %v, want Invalid", apierrors.ReasonForError(err))
	}

	unknown := w.vm("unknown")
	must(t, unstructured.SetNestedField(unknown.Object, true, "spec", "template", "spec", "domain", "turbo"))
	err = w.admin.Create(t.Context(), unknown, client.FieldValidation(metav1.FieldValidationStrict))
	if err == nil || !strings.Contains(err.Error(), `unknown field "spec.template.spec.domain.turbo"`) {
		t.Errorf("a field that does not exist: %v", err)
	}
}

func (w *world) newVMI(t *testing.T) {
	vmi := w.vmi("new")
	vmi.Status.Phase = v1.Running
	must(t, w.admin.Create(t.Context(), vmi))
	if vmi.Status.Phase != "" {
		t.Errorf("phase is %q: users can make a guest seem to run", vmi.Status.Phase)
	}
	if diff := cmp.Diff([]string{v1.VirtualMachineInstanceFinalizer}, vmi.Finalizers); diff != "" {
		t.Error(diff)
	}
	if len(vmi.Spec.Networks) != 1 || vmi.Spec.Networks[0].Pod == nil || vmi.Spec.Domain.Devices.Interfaces[0].Masquerade == nil {
		t.Errorf("the VMI is not on the pod network: %+v", vmi.Spec.Networks)
	}
	if vmi.Spec.Domain.Firmware == nil || vmi.Spec.Domain.Firmware.UUID == "" {
		t.Error("the VMI has no firmware UUID")
	}
}

func (w *world) changedVMI(t *testing.T) {
	vmi := w.vmi("owned")
	must(t, w.admin.Create(t.Context(), vmi))
	patch := func(c client.Client, text string) error {
		return c.Patch(t.Context(), vmi.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(text)))
	}
	must(t, patch(w.admin, `{"metadata":{"labels":{"app":"web"}}}`))
	for what, text := range map[string]string{
		"spec":   `{"spec":{"hostname":"x"}}`,
		"status": `{"status":{"phase":"Failed"}}`,
		"label":  `{"metadata":{"labels":{"kubevirt.io/nodeName":"x"}}}`,
	} {
		if err := patch(w.admin, text); !apierrors.IsInvalid(err) {
			t.Errorf("a user changes the %s: %v", what, err)
		}
	}
	for _, account := range []string{admission.ControllerServiceAccount, admission.HandlerServiceAccount} {
		must(t, patch(w.component(account), `{"metadata":{"labels":{"kubevirt.io/nodeName":"x"}},"status":{"phase":"Scheduled"}}`))
	}
}

// migration requests migrations, by their objects and by the verb.
func (w *world) migration(t *testing.T) {
	const denied = `admission webhook "migration-create-validator.kubevirt.io" denied the request: `
	m := func(name, vmi string) *v1.VirtualMachineInstanceMigration {
		out := &v1.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace}}
		out.Spec.VMIName = vmi
		return out
	}
	expect := func(what string, err error, want string) {
		t.Helper()
		if !apierrors.IsInvalid(err) || sentence(err) != denied+want {
			t.Errorf("%s: the answer is\n%v\nwant\n%s", what, err, denied+want)
		}
	}
	expect("no such VMI", w.admin.Create(t.Context(), m("m", "nobody")), `spec.vmiName: Invalid value: "nobody": there is no such VMI in namespace `+w.namespace)
	expect("a name that nothing has", w.admin.Create(t.Context(), m("m", "a/b")), `spec.vmiName: Invalid value: "a/b": there is no such VMI in namespace `+w.namespace)
	w.running(t, "moves")
	first := m("first", "moves")
	first.Status.Phase = v1.MigrationSucceeded
	must(t, w.admin.Create(t.Context(), first))
	if diff := cmp.Diff([]string{v1.VirtualMachineInstanceMigrationFinalizer}, first.Finalizers); diff != "" {
		t.Error(diff)
	}
	if first.Labels[v1.MigrationSelectorLabel] != "moves" || first.Status.Phase != "" {
		t.Errorf("the migration has the labels %v and the phase %q", first.Labels, first.Status.Phase)
	}
	expect("a second one", w.admin.Create(t.Context(), m("second", "moves")), "in-flight migration detected. VMI moves is being migrated already, by the migration first; delete that to cancel it")
	expect("a second one of a component", w.component(admission.ControllerServiceAccount).Create(t.Context(), m("second", "moves")),
		"in-flight migration detected. VMI moves is being migrated already, by the migration first; delete that to cancel it")
	changed := first.DeepCopy()
	changed.Spec.VMIName = "another"
	expect("a change", w.admin.Update(t.Context(), changed), "spec: a migration can't be changed: delete it, which cancels it, and create another")
	// Also while virt-api is down: a deletion must need no webhook.
	released := first.DeepCopy()
	released.Finalizers = nil
	must(t, w.admin.Patch(t.Context(), released, client.MergeFrom(first)))
	must(t, w.admin.Delete(t.Context(), first))

	policy := &migrationsv1alpha1.MigrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
	if err := w.admin.Create(t.Context(), policy); err == nil {
		t.Error("a policy without selectors is admitted")
	}
	policy.Spec.Selectors = &migrationsv1alpha1.Selectors{NamespaceSelector: map[string]string{corev1.LabelMetadataName: w.namespace}}
	must(t, w.admin.Create(t.Context(), policy))
	must(t, w.admin.Delete(t.Context(), policy))
}

// migrate calls the verb, which makes a migration in virt-api's own name.
func (w *world) migrate(t *testing.T) {
	vm := w.vm("mover")
	must(t, w.admin.Create(t.Context(), vm))
	verb := func(body string) string {
		_, err := w.call(http.MethodPut, w.subresource("virtualmachines", "mover", "migrate"), body)
		if err == nil {
			return ""
		}
		return sentence(err)
	}
	const refused = `Operation cannot be fulfilled on virtualmachine.kubevirt.io "mover": `
	if got := verb("{}"); got != refused+"VM is not running" {
		t.Errorf("a VM that is off: %q", got)
	}
	vmi := w.vmi("mover")
	vmi.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind)}
	must(t, w.component(admission.ControllerServiceAccount).Create(t.Context(), vmi))
	before := vmi.DeepCopy()
	vmi.Status.Phase, vmi.Status.NodeName = v1.Running, w.node.name
	must(t, w.component(admission.HandlerServiceAccount).Patch(t.Context(), vmi, client.MergeFrom(before)))
	if got := verb(`{"addedNodeSelector":{"not a label":"a"}}`); !strings.Contains(got, `spec.addedNodeSelector: Invalid value: "not a label"`) {
		t.Errorf("a selector that is none: %q", got)
	}
	if got := verb(`{"turbo":true}`); !strings.Contains(got, `unknown field "turbo"`) {
		t.Errorf("an option that is none: %q", got)
	}
	made := func() []v1.VirtualMachineInstanceMigration {
		list := &v1.VirtualMachineInstanceMigrationList{}
		must(t, w.admin.List(t.Context(), list, client.InNamespace(w.namespace), client.MatchingFields{"spec.vmiName": "mover"}))
		return list.Items
	}
	if got := verb(`{"dryRun":["All"]}`); got != "" || len(made()) != 0 {
		t.Errorf("a dry run: %q, and %d migrations", got, len(made()))
	}
	if got := verb(`{"addedNodeSelector":{"zone":"b"}}`); got != "" {
		t.Fatalf("a migration: %q", got)
	}
	all := made()
	if len(all) != 1 || !strings.HasPrefix(all[0].Name, "kubevirt-migrate-vm-") || all[0].Spec.AddedNodeSelector["zone"] != "b" || len(all[0].OwnerReferences) != 0 {
		t.Fatalf("these migrations were made: %+v", all)
	}
	if got := verb(""); !strings.HasSuffix(got, "VMI mover is being migrated already, by the migration "+all[0].Name+"; delete that to cancel it") {
		t.Errorf("a second one: %q", got)
	}
	must(t, w.admin.Patch(t.Context(), all[0].DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	must(t, client.IgnoreNotFound(w.admin.Delete(t.Context(), &all[0])))
}

func (w *world) examples(t *testing.T) {
	paths, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("found no examples (%v)", err)
	}
	for _, path := range paths {
		for _, object := range manifests(t, path) {
			object.SetNamespace(w.namespace)
			err := w.admin.Create(t.Context(), object, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
			if err != nil {
				t.Errorf("%s: %s %s: %v", filepath.Base(path), object.GetKind(), object.GetName(), err)
			}
		}
	}
}

func (w *world) discovery(t *testing.T) {
	d, err := discovery.NewDiscoveryClientForConfig(w.config)
	must(t, err)
	resources, err := d.ServerResourcesForGroupVersion("subresources.kubevirt.io/v1")
	must(t, err)
	found := map[string]bool{}
	for _, r := range resources.APIResources {
		found[r.Name] = true
	}
	for _, name := range []string{"virtualmachines/start", "virtualmachines/migrate", "virtualmachineinstances/console", "version"} {
		if !found[name] {
			t.Errorf("discovery does not tell about %s", name)
		}
	}
	// A busy API server may find another group late.
	w.eventually(t, "discovery of everything", func() error {
		_, err := d.ServerPreferredResources()
		return err
	})
	// kubevirt.io/client-go asks like this.
	var group metav1.APIGroup
	w.get(t, "/apis/subresources.kubevirt.io", &group)
	var info struct{ GitVersion, GoVersion string }
	w.get(t, "/apis/"+group.PreferredVersion.GroupVersion+"/version", &info)
	if info.GitVersion == "" || info.GoVersion == "" {
		t.Errorf("version is %+v", info)
	}
}

func (w *world) get(t *testing.T, path string, into any) {
	t.Helper()
	text, err := w.call(http.MethodGet, path, "")
	must(t, err)
	must(t, json.Unmarshal([]byte(text), into))
}

func (w *world) startAndStop(t *testing.T) {
	must(t, w.admin.Create(t.Context(), w.vm("vm-cirros")))
	put := func(verb, body string) string {
		_, err := w.call(http.MethodPut, w.subresource("virtualmachines", "vm-cirros", verb), body)
		if err == nil {
			return ""
		}
		return sentence(err)
	}
	const refused = `Operation cannot be fulfilled on virtualmachine.kubevirt.io "vm-cirros": `
	for _, step := range []struct{ verb, body, want, strategy string }{
		{"restart", "", refused + "Halted does not support manual restart requests", "Halted"},
		{"start", `{"dryRun":["All"]}`, "", "Halted"},
		{"start", `{"paused":true}`, "", "Always"},
		{"start", "", refused + "Always does not support manual start requests", "Always"},
		{"stop", `{"gracePeriod":-1}`, "grace period is -1 s; it must not be negative", "Always"},
		{"stop", `{"soon":true}`, `decoding the request's body: json: unknown field "soon"`, "Always"},
		{"stop", "null", "", "Halted"},
		{"stop", "", refused + "VM is not running", "Halted"},
		{"start", "", "", "Always"},
	} {
		if got := put(step.verb, step.body); got != step.want {
			t.Errorf("%s %s: answer is %q, want %q", step.verb, step.body, got, step.want)
		}
		vm := &v1.VirtualMachine{}
		must(t, w.admin.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "vm-cirros"}, vm))
		if got := string(*vm.Spec.RunStrategy); got != step.strategy {
			t.Errorf("after %s %s the run strategy is %s, want %s", step.verb, step.body, got, step.strategy)
		}
	}
	var expanded v1.VirtualMachine
	w.get(t, w.subresource("virtualmachines", "vm-cirros", "expand-spec"), &expanded)
	if expanded.Kind != "VirtualMachine" || expanded.Name != "vm-cirros" {
		t.Errorf("expand-spec answered with %s %s", expanded.Kind, expanded.Name)
	}
	_, err := w.call(http.MethodGet, w.subresource("virtualmachines", "vm-cirros", "objectgraph"), "")
	if want := "GET " + w.subresource("virtualmachines", "vm-cirros", "objectgraph") + ": not supported by Drydock: 'kubectl get vm"; !strings.HasPrefix(sentence(err), want) {
		t.Errorf("a verb that is not there: %q, want %q", sentence(err), want)
	}
	if _, err := w.call(http.MethodPut, w.subresource("virtualmachines", "nobody", "start"), ""); !apierrors.IsNotFound(err) {
		t.Errorf("start of a VM that is not there: %v", err)
	}
}

// running makes a VMI that runs on the test's node.
func (w *world) running(t *testing.T, name string) *v1.VirtualMachineInstance {
	t.Helper()
	vmi := w.vmi(name)
	must(t, w.admin.Create(t.Context(), vmi))
	before := vmi.DeepCopy()
	vmi.Status.Phase, vmi.Status.NodeName = v1.Running, w.node.name
	must(t, w.component(admission.HandlerServiceAccount).Patch(t.Context(), vmi, client.MergeFrom(before)))
	return vmi
}

func (w *world) verbs(t *testing.T) {
	early := w.vmi("early")
	must(t, w.admin.Create(t.Context(), early))
	_, err := w.call(http.MethodPut, w.subresource("virtualmachineinstances", "early", "pause"), "{}")
	if want := `Operation cannot be fulfilled on virtualmachineinstance.kubevirt.io "early": VMI is not running`; sentence(err) != want {
		t.Errorf("answer is %q, want %q", sentence(err), want)
	}
	vmi := w.running(t, "guest")
	for verb, route := range map[string]nodeapi.Verb{
		"pause": nodeapi.Pause, "softreboot": nodeapi.SoftReboot, "reset": nodeapi.Reset,
	} {
		_, err := w.call(http.MethodPut, w.subresource("virtualmachineinstances", "guest", verb), "{}")
		must(t, err)
		want := "PUT " + nodeapi.Path(w.namespace, "guest", string(vmi.UID), route).String()
		if got := <-w.node.asked; got != want {
			t.Errorf("the node was asked %s, want %s", got, want)
		}
	}
	_, err = w.call(http.MethodPut, w.subresource("virtualmachineinstances", "guest", "pause"), `{"dryRun":["All"]}`)
	must(t, err)
	select {
	case asked := <-w.node.asked:
		t.Errorf("a dry run reached the node: %s", asked)
	default:
	}
	lost := vmi.DeepCopy()
	lost.Status.NodeName = "gone"
	must(t, w.component(admission.HandlerServiceAccount).Patch(t.Context(), lost, client.MergeFrom(vmi)))
	_, err = w.call(http.MethodPut, w.subresource("virtualmachineinstances", "guest", "pause"), "{}")
	if want := "Internal error occurred: calling virt-handler on node gone: none runs there"; sentence(err) != want {
		t.Errorf("answer is %q, want %q", sentence(err), want)
	}
}

func (w *world) console(t *testing.T) {
	vmi := w.running(t, "talker")
	tlsConfig, err := rest.TLSConfigFor(w.config)
	must(t, err)
	dialer := websocket.Dialer{TLSClientConfig: tlsConfig, Subprotocols: []string{nodeapi.StreamProtocol}}
	host := strings.Replace(w.config.Host, "https://", "wss://", 1)
	for path, route := range map[string]string{
		w.subresource("virtualmachineinstances", "talker", "console"):            nodeapi.Path(w.namespace, "talker", "", nodeapi.Console).Path,
		w.subresource("virtualmachineinstances", "talker", "vnc"):                nodeapi.Path(w.namespace, "talker", "", nodeapi.VNC).Path,
		w.subresource("virtualmachineinstances", "talker", "portforward/22"):     nodeapi.Path(w.namespace, "talker", "", nodeapi.PortForward, "22", "tcp").Path,
		w.subresource("virtualmachineinstances", "talker", "portforward/53/udp"): nodeapi.Path(w.namespace, "talker", "", nodeapi.PortForward, "53", "udp").Path,
		w.subresource("virtualmachines", "talker", "portforward/22/tcp"):         nodeapi.Path(w.namespace, "talker", "", nodeapi.PortForward, "22", "tcp").Path,
	} {
		conn, response, err := dialer.DialContext(t.Context(), host+path, nil)
		if err != nil {
			t.Fatalf("%s: %v (%v)", path, err, response)
		}
		if conn.Subprotocol() != nodeapi.StreamProtocol {
			t.Errorf("%s: the subprotocol is %q", path, conn.Subprotocol())
		}
		must(t, conn.WriteMessage(websocket.BinaryMessage, []byte("hello")))
		_, message, err := conn.ReadMessage()
		must(t, err)
		if got, want := string(message), route+": hello"; got != want {
			t.Errorf("%s: the guest answered %q, want %q", path, got, want)
		}
		must(t, conn.Close())
	}
	stopped := vmi.DeepCopy()
	stopped.Status.Phase = v1.Succeeded
	must(t, w.component(admission.HandlerServiceAccount).Patch(t.Context(), stopped, client.MergeFrom(vmi)))
	_, response, err := dialer.DialContext(t.Context(), host+w.subresource("virtualmachineinstances", "talker", "console"), nil)
	if err == nil || response.StatusCode != http.StatusBadRequest {
		t.Errorf("console of a guest that has ended: %v %v", response, err)
	}
}

func (w *world) roles(t *testing.T) {
	as := func(user string) *rest.Config {
		config := rest.CopyConfig(w.config)
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
		return config
	}
	for user, role := range map[string]string{"viewer": "kubevirt.io:view", "editor": "kubevirt.io:edit", "mover": "kubevirt.io:migrate"} {
		must(t, w.admin.Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: user, Namespace: w.namespace},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		}))
	}
	w.running(t, "shared")
	pause := w.subresource("virtualmachineinstances", "shared", "pause")
	w.eventually(t, "an editor may pause", func() error {
		_, err := callAs(t.Context(), as("editor"), http.MethodPut, pause, "{}")
		return err
	})
	<-w.node.asked
	_, err := callAs(t.Context(), as("viewer"), http.MethodPut, pause, "{}")
	if !apierrors.IsForbidden(err) {
		t.Errorf("a viewer pauses: %v", err)
	}
	// There is no such VM, and users who may migrate must be told so.
	migrate := w.subresource("virtualmachines", "shared", "migrate")
	w.eventually(t, "whom an administrator has chosen may migrate", func() error {
		if _, err := callAs(t.Context(), as("mover"), http.MethodPut, migrate, "{}"); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the answer is %w", err)
		}
		return nil
	})
	if _, err := callAs(t.Context(), as("editor"), http.MethodPut, migrate, "{}"); !apierrors.IsForbidden(err) {
		t.Errorf("an editor migrates: %v", err)
	}
	_, err = callAs(t.Context(), as("stranger"), http.MethodGet, "/apis/subresources.kubevirt.io/v1/version", "")
	if err != nil {
		t.Errorf("who can log in may ask for the version: %v", err)
	}
}

// kube-apiserver must call virt-api with its new certificate, without a restart.
func (w *world) rotation(t *testing.T) {
	key := client.ObjectKey{Namespace: clusterconfig.Namespace, Name: certs.APISecret}
	secret := &corev1.Secret{}
	must(t, w.admin.Get(t.Context(), key, secret))
	before := secret.Data[corev1.TLSCertKey]
	secret.Data = nil
	must(t, w.admin.Update(t.Context(), secret))
	w.eventually(t, "a new certificate is made", func() error {
		if err := w.admin.Get(t.Context(), key, secret); err != nil {
			return err
		}
		if now := secret.Data[corev1.TLSCertKey]; len(now) == 0 || string(now) == string(before) {
			return context.DeadlineExceeded
		}
		return nil
	})
	began := time.Now()
	w.eventually(t, "admission works with it", func() error {
		return w.admin.Create(t.Context(), w.vm("after-rotation"), client.DryRunAll)
	})
	t.Logf("admission answered %v after the rotation", time.Since(began).Round(time.Millisecond))
}

// away ends virt-api: requests that it would accept anyway must succeed without it.
func (w *world) away(t *testing.T) {
	const finalizer = "example.com/held"
	vm, vmi := w.vm("left"), w.vmi("left")
	vm.SetFinalizers([]string{finalizer})
	vmi.Finalizers = []string{finalizer}
	must(t, w.admin.Create(t.Context(), vm))
	must(t, w.admin.Create(t.Context(), vmi))
	users, named := w.newPod(t, "users-own", ""), w.newPod(t, "virt-launcher-users-own", "")
	w.stop()

	// A webhook that does not answer must keep nobody's pod.
	must(t, w.evict(t, users, false))
	must(t, w.evict(t, named, false))

	patch := func(c client.Client, object client.Object, text string) error {
		return c.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(text)))
	}
	for _, object := range []client.Object{vm, vmi} {
		if err := patch(w.admin, object, `{"metadata":{"labels":{"changed":"true"}}}`); err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
			t.Errorf("a change of %T that nobody has judged: %v", object, err)
		}
	}
	controller := w.component(admission.ControllerServiceAccount)
	must(t, patch(controller, vm, `{"metadata":{"labels":{"noted":"true"}}}`))
	for _, object := range []client.Object{vm, vmi} {
		must(t, client.IgnoreNotFound(w.admin.Delete(t.Context(), object)))
		must(t, patch(w.admin, object, `{"metadata":{"finalizers":null}}`))
		if err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
			t.Errorf("%T is not gone: %v", object, err)
		}
	}
}
