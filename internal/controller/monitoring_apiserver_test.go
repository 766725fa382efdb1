//go:build apiserver

package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/certs"
	"drydock.dev/drydock/internal/rules/cluster/components"
	"drydock.dev/drydock/internal/ruletable"
)

func serviceMonitors() *apiextensionsv1.CustomResourceDefinition {
	return ofPrometheus(components.ServiceMonitorDefinition, "servicemonitors", components.ServiceMonitorKind)
}

func prometheusRules() *apiextensionsv1.CustomResourceDefinition {
	return ofPrometheus(components.RulesDefinition, "prometheusrules", components.RulesKind)
}

// The definition has only the fields that matter here.
func ofPrometheus(name, plural string, kind schema.GroupVersionKind) *apiextensionsv1.CustomResourceDefinition {
	anything := true
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: kind.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind.Kind},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: kind.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: &anything,
				}},
			}},
		},
	}
}

// With an empty account it waits until there is neither.
func (w *world) monitored(namespace string, account string) {
	w.t.Helper()
	w.eventually("the ServiceMonitor in "+namespace+" for the account "+account, func() (bool, string) {
		monitor := &unstructured.Unstructured{}
		monitor.SetGroupVersionKind(components.ServiceMonitorKind)
		err := w.client.Get(w.ctx, client.ObjectKey{Namespace: namespace, Name: components.ServiceMonitorName}, monitor)
		var binding rbacv1.RoleBinding
		bound := w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: components.MonitoringRole}, &binding)
		if account == "" {
			_, there := w.metricsAuthorities(namespace)
			return err != nil && apierrors.IsNotFound(bound) && !there, "they are there"
		}
		if err != nil || bound != nil {
			_, message := w.synchronized()
			return false, message
		}
		where, _, _ := unstructured.NestedStringSlice(monitor.Object, "spec", "namespaceSelector", "matchNames")
		authorities, there := w.metricsAuthorities(namespace)
		if !there || authorities != theAuthorities {
			return false, "Prometheus is to trust " + authorities
		}
		return len(where) == 1 && where[0] == w.namespace && len(binding.Subjects) == 1 && binding.Subjects[0].Name == account, "they are of others"
	})
}

// ruled waits until the rules are in a namespace, or are not there.
func (w *world) ruled(namespace string, there bool) {
	w.t.Helper()
	w.eventually("the rules in "+namespace, func() (bool, string) {
		rules := &unstructured.Unstructured{}
		rules.SetGroupVersionKind(components.RulesKind)
		err := w.client.Get(w.ctx, client.ObjectKey{Namespace: namespace, Name: components.RulesName}, rules)
		if !there {
			return apierrors.IsNotFound(err), "they are there"
		}
		groups, _, _ := unstructured.NestedSlice(rules.Object, "spec", "groups")
		return err == nil && len(groups) == len(ruletable.Groups()), "they are not there"
	})
}

// theAuthorities stands for the CAs of the metrics that virt-api has published.
const theAuthorities = "an authority"

func (w *world) metricsAuthorities(namespace string) (string, bool) {
	var found corev1.ConfigMap
	err := w.client.Get(w.ctx, client.ObjectKey{Namespace: namespace, Name: components.MetricsAuthorities}, &found)
	return found.Data["ca.crt"], err == nil
}

func TestPrometheusIsToldOfTheMetrics(t *testing.T) {
	w := newWorld(t)
	elsewhere := w.anotherNamespace()
	w.setEmulation("kubevirt", w.namespace, true)
	w.say(func(spec *v1.KubeVirtSpec) { spec.MonitorNamespace, spec.MonitorAccount = w.namespace, "eye" })
	w.monitored(w.namespace, "")
	w.awaitSettled()

	definition := serviceMonitors()
	w.do("creating the definition", w.client.Create(w.ctx, definition))
	t.Cleanup(func() { _ = w.client.Delete(w.cleanup(), serviceMonitors()) })
	w.monitored(w.namespace, "")
	// They must be copied as soon as virt-api has published one.
	w.do("publishing the authority", w.client.Create(w.ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: certs.TrustConfigMap}, Data: map[string]string{certs.MetricsTrust(): theAuthorities},
	}))
	w.monitored(w.namespace, "eye")
	w.awaitSettled()
	w.do("creating the definition of rules", w.client.Create(w.ctx, prometheusRules()))
	t.Cleanup(func() { _ = w.client.Delete(w.cleanup(), prometheusRules()) })
	w.ruled(w.namespace, true)
	w.awaitSettled()

	w.say(func(spec *v1.KubeVirtSpec) {
		spec.ServiceMonitorNamespace, spec.MonitorAccount = elsewhere, "other"
	})
	w.monitored(elsewhere, "other")
	w.ruled(elsewhere, true)
	w.ruled(w.namespace, false)
	w.eventually("the first ServiceMonitor to be gone", func() (bool, string) {
		monitor := &unstructured.Unstructured{}
		monitor.SetGroupVersionKind(components.ServiceMonitorKind)
		err := w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: components.ServiceMonitorName}, monitor)
		_, there := w.metricsAuthorities(w.namespace)
		return apierrors.IsNotFound(err) && !there, "it is there"
	})

	w.say(func(spec *v1.KubeVirtSpec) { spec.ServiceMonitorNamespace = "nowhere-at-all" })
	w.eventually("a namespace that is missing to be named", func() (bool, string) {
		status, message := w.synchronized()
		return status == corev1.ConditionFalse, message
	})
	// Without a named account and without the usual ones there is no Prometheus.
	w.say(func(spec *v1.KubeVirtSpec) {
		spec.MonitorNamespace, spec.ServiceMonitorNamespace, spec.MonitorAccount = "", "", ""
	})
	w.monitored(elsewhere, "")
	w.ruled(elsewhere, false)

	w.say(func(spec *v1.KubeVirtSpec) { spec.MonitorNamespace = w.namespace })
	w.monitored(w.namespace, "prometheus-k8s")
	w.do("deleting the definition", w.client.Delete(w.ctx, definition))
	w.monitored(w.namespace, "")
	w.awaitSettled()
}
