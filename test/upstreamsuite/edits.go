package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

type edit struct {
	file string
	// old occurs times times; 0 means once.
	old, new string
	times    int
	// why is the suite's unmet assumption.
	why string
}

const (
	cleaning       = "tests/testsuite/namespace.go"
	notServed      = "it cleans up kinds that are not served: there is nothing to clean up"
	slowClients    = "its clients ask five times a second, so that the cleanup after each spec takes ten seconds; this API server needs no such limit"
	olderTemplates = "the version of the templates' module that test/upstreamvirtctl pins has no v1beta1; templates are not served"
)

// edits are all changes of the suite. Its cleanup asserts that all deleted kinds are served; no edit changes a spec's
// assertion.
var edits = append([]edit{
	removed("// Remove all VirtualMachinePools\n\t\t", "VirtualMachinePool"),
	removed("// Remove vmbackups\n\t\t", "VirtualMachineBackup"),
	removed("// Remove vmbackuptrackers\n\t\t", "VirtualMachineBackupTracker"),
	removed("// Remove vmexports\n\t\t", "VirtualMachineExport"),
	{
		file: cleaning,
		old:  "Expect(virtCli.RestClient().Delete().Namespace(namespace).Resource(\"virtualmachineinstancepresets\").Do(context.Background()).Error()).To(Succeed())",
		why:  notServed,
	},
	{
		file: cleaning, times: 2,
		old: "Namespace(namespace).List(context.Background(), metav1.ListOptions{})\n\tif errors.IsNotFound(err) {",
		new: "Namespace(namespace).List(context.Background(), metav1.ListOptions{})\n\tif errors.IsNotFound(err) || errors.IsMethodNotSupported(err) {",
		why: "it cleans up templates, of which virt-api says that they are not served (decision 605)",
	},
	{
		file: cleaning, old: "}, 10*time.Minute, 10*time.Second)", new: "}, 10*time.Minute, time.Second)",
		why: "after each spec it looks again whether events are gone; they are at once",
	},
	{
		file: cleaning, old: "\t\"k8s.io/apimachinery/pkg/types\"\n", new: "\t\"k8s.io/apimachinery/pkg/types\"\n\t\"k8s.io/client-go/rest\"\n",
		why: slowClients,
	},
	{
		file: cleaning, old: "func CleanNamespaces() {\n",
		new: "func init() {\n\tkubecli.RegisterRestConfigHook(func(config *rest.Config) { config.QPS = -1 })\n}\n\nfunc CleanNamespaces() {\n",
		why: slowClients,
	},
	{
		file: "tests/testsuite/fixture.go",
		old:  `matcher.ThisDeploymentWith(flags.KubeVirtInstallNamespace, "virt-operator")`,
		new:  `matcher.ThisDeploymentWith(flags.KubeVirtInstallNamespace, "virt-api")`,
		why:  "Drydock has no operator",
	},
	{
		file: "tests/libkubevirt/config/kvconfig.go",
		old:  "\ttestsuite.EnsureKubevirtReady()\n\twaitForConfigToBePropagated(kv.ResourceVersion)\n",
		new:  "\ttestsuite.EnsureKubevirtReady()\n",
		why:  "it asks each component's /healthz for the configuration's version; the object's observedGeneration says here that it is known",
	},
	{
		file: "go.mod", why: staging,
		old: "kubevirt.io/api => ./staging/src/kubevirt.io/api\n",
		new: "kubevirt.io/api => kubevirt.io/api " + release + "\n",
	},
	{
		file: "go.mod", why: staging + "; " + olderTemplates,
		old: "kubevirt.io/client-go => ./staging/src/kubevirt.io/client-go\n",
		new: "kubevirt.io/client-go => kubevirt.io/client-go " + release + "\n" +
			"\tkubevirt.io/virt-template-api => kubevirt.io/virt-template-api v0.1.7\n" +
			"\tkubevirt.io/virt-template-client-go => kubevirt.io/virt-template-client-go v0.1.7\n" +
			"\tkubevirt.io/virt-template-engine => kubevirt.io/virt-template-engine v0.1.7\n",
	},
}, templates()...)

const staging = "modules within a module are not part of it"

func removed(comment, kind string) edit {
	return edit{
		file: cleaning, why: notServed,
		old: comment + "Expect(virtCli." + kind + "(namespace).DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{})).To(Succeed())",
	}
}

// The older version of the templates' packages is linked under the newer names.
func templates() []edit {
	var all []edit
	importing := func(file, name, folder string, calls int) {
		all = append(all, edit{
			file: file, why: olderTemplates,
			old: "\t" + name + `"kubevirt.io/virt-template-api/core/` + folder + `v1beta1"`,
			new: "\t" + cmp.Or(name, folder+"v1beta1 ") + `"kubevirt.io/virt-template-api/core/` + folder + `v1alpha1"`,
		})
		if calls > 0 {
			all = append(all, edit{file: file, why: olderTemplates, times: calls, old: ".TemplateV1beta1()", new: ".TemplateV1alpha1()"})
		}
	}
	importing("pkg/controller/virtinformers.go", "", "", 1)
	importing("pkg/storage/export/export/vmtemplate-source.go", "", "", 0)
	importing("pkg/storage/export/virt-exportserver/oci.go", "", "", 0)
	importing("pkg/virtctl/template/convert/convert.go", "", "", 0)
	importing("pkg/virtctl/template/create/create.go", "", "", 1)
	importing("pkg/virtctl/template/process/process.go", "", "", 3)
	importing("pkg/virtctl/template/process/process.go", "", "subresources", 0)
	importing("tests/storage/export.go", "templatev1beta1 ", "", 2)
	return all
}

// apply makes the edits in a folder. It fails if a text does not occur as often as expected, as in another release.
func apply(folder string, edits []edit) error {
	for _, e := range edits {
		name := filepath.Join(folder, e.file)
		text, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("editing the suite: %w", err)
		}
		if got, want := strings.Count(string(text), e.old), max(e.times, 1); got != want {
			return fmt.Errorf("editing the suite: %s has %d times the text %q, and %d were expected: see what the release does there instead", e.file, got, e.old, want)
		}
		changed := strings.ReplaceAll(string(text), e.old, e.new)
		if err := os.WriteFile(name, []byte(changed), 0o644); err != nil {
			return fmt.Errorf("editing the suite: %w", err)
		}
	}
	return nil
}
