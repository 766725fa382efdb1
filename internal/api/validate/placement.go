package validate

import (
	"errors"
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	netutils "k8s.io/utils/net"
	v1 "kubevirt.io/api/core/v1"
)

func placement(spec *v1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	errs := labelSet(spec.NodeSelector, path.Child("nodeSelector"))
	errs = append(errs, affinity(spec.Affinity, path.Child("affinity"))...)
	for i := range spec.Tolerations {
		errs = append(errs, toleration(&spec.Tolerations[i], path.Child("tolerations").Index(i))...)
	}
	for i := range spec.TopologySpreadConstraints {
		errs = append(errs, spread(&spec.TopologySpreadConstraints[i], path.Child("topologySpreadConstraints").Index(i))...)
	}
	if spec.Hostname != "" {
		errs = append(errs, label(spec.Hostname, path.Child("hostname"))...)
	}
	if spec.Subdomain != "" {
		errs = append(errs, label(spec.Subdomain, path.Child("subdomain"))...)
	}
	errs = append(errs, serviceAccount(spec, path)...)
	if spec.PriorityClassName != "" {
		errs = append(errs, subdomain(spec.PriorityClassName, path.Child("priorityClassName"))...)
	}
	if s := spec.TerminationGracePeriodSeconds; s != nil {
		switch at := path.Child("terminationGracePeriodSeconds"); {
		case *s < 0:
			errs = append(errs, field.Invalid(at, *s, "must not be negative"))
		case *s > maxGracePeriod:
			errs = append(errs, field.Invalid(at, *s, fmt.Sprintf("must not be greater than %d", maxGracePeriod)))
		}
	}
	return append(errs, dns(spec, path)...)
}

// maxGracePeriod, in seconds, is longer than any guest lives. A larger one could overflow in nanoseconds, and the
// guest would get no time at all.
const maxGracePeriod = math.MaxInt32

func affinity(a *corev1.Affinity, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if a == nil {
		return nil
	}
	if p := a.PodAffinity; p != nil {
		errs = append(errs, podAffinity(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAffinity"))...)
	}
	if p := a.PodAntiAffinity; p != nil {
		errs = append(errs, podAffinity(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAntiAffinity"))...)
	}
	if a.NodeAffinity == nil {
		return errs
	}
	if required := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		at := path.Child("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
		if len(required.NodeSelectorTerms) == 0 {
			errs = append(errs, field.Required(at.Child("nodeSelectorTerms"), "must have at least one term"))
		}
		_, err := nodeaffinity.NewNodeSelector(required, field.WithPath(at))
		errs = append(errs, fieldErrors(err, at)...)
	}
	if preferred := a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution; preferred != nil {
		at := path.Child("nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution")
		_, err := nodeaffinity.NewPreferredSchedulingTerms(preferred, field.WithPath(at))
		errs = append(errs, fieldErrors(err, at)...)
	}
	return errs
}

func fieldErrors(err error, at *field.Path) field.ErrorList {
	var many utilerrors.Aggregate
	var one *field.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &many):
		var errs field.ErrorList
		for _, e := range many.Errors() {
			errs = append(errs, fieldErrors(e, at)...)
		}
		return errs
	case errors.As(err, &one):
		return field.ErrorList{one}
	}
	return field.ErrorList{field.Invalid(at, "", err.Error())}
}

func toleration(t *corev1.Toleration, path *field.Path) field.ErrorList {
	errs := oneOf(t.Operator, path.Child("operator"), corev1.TolerationOpEqual, corev1.TolerationOpExists)
	errs = append(errs, oneOf(t.Effect, path.Child("effect"),
		corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)...)
	if t.Key == "" && t.Operator != corev1.TolerationOpExists {
		errs = append(errs, field.Invalid(path.Child("operator"), t.Operator, "must be Exists when the key is empty"))
	}
	if t.Operator == corev1.TolerationOpExists && t.Value != "" {
		errs = append(errs, field.Invalid(path.Child("value"), t.Value, "must be empty when the operator is Exists"))
	}
	if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
		errs = append(errs, field.Invalid(path.Child("effect"), t.Effect, "must be NoExecute when tolerationSeconds is set"))
	}
	return errs
}

func spread(c *corev1.TopologySpreadConstraint, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c.MaxSkew <= 0 {
		errs = append(errs, field.Invalid(path.Child("maxSkew"), c.MaxSkew, "must be greater than zero"))
	}
	errs = append(errs, topologyKey(c.TopologyKey, path.Child("topologyKey"))...)
	errs = append(errs, labelSelector(c.LabelSelector, path.Child("labelSelector"))...)
	errs = append(errs, labelKeys(c.MatchLabelKeys, c.LabelSelector, path.Child("matchLabelKeys"))...)
	if d := c.MinDomains; d != nil && *d <= 0 {
		errs = append(errs, field.Invalid(path.Child("minDomains"), *d, "must be greater than zero"))
	} else if d != nil && c.WhenUnsatisfiable != corev1.DoNotSchedule {
		errs = append(errs, field.Invalid(path.Child("minDomains"), *d, "needs whenUnsatisfiable to be DoNotSchedule"))
	}
	errs = append(errs, inclusion(c.NodeAffinityPolicy, path.Child("nodeAffinityPolicy"))...)
	errs = append(errs, inclusion(c.NodeTaintsPolicy, path.Child("nodeTaintsPolicy"))...)
	return append(errs, oneOf(c.WhenUnsatisfiable, path.Child("whenUnsatisfiable"),
		corev1.DoNotSchedule, corev1.ScheduleAnyway)...)
}

func inclusion(policy *corev1.NodeInclusionPolicy, path *field.Path) field.ErrorList {
	if policy == nil {
		return nil
	}
	return oneOf(*policy, path, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)
}

func dns(spec *v1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	errs := oneOf(spec.DNSPolicy, path.Child("dnsPolicy"), corev1.DNSClusterFirstWithHostNet,
		corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone)
	config, path := spec.DNSConfig, path.Child("dnsConfig")
	if config == nil {
		config = &corev1.PodDNSConfig{}
	}
	if spec.DNSPolicy == corev1.DNSNone && len(config.Nameservers) == 0 {
		errs = append(errs, field.Required(path.Child("nameservers"), "the dnsPolicy None leaves the guest with these alone"))
	}
	for i, server := range config.Nameservers {
		if netutils.ParseIPSloppy(server) == nil {
			errs = append(errs, field.Invalid(path.Child("nameservers").Index(i), server, "must be an IP address"))
		}
	}
	return errs
}

func probes(spec *v1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	errs := probe(spec.LivenessProbe, len(spec.Networks) > 0, path.Child("livenessProbe"))
	if p := spec.LivenessProbe; p != nil && p.SuccessThreshold > 1 {
		errs = append(errs, field.Invalid(path.Child("livenessProbe", "successThreshold"), p.SuccessThreshold, "must be 1"))
	}
	return append(errs, probe(spec.ReadinessProbe, len(spec.Networks) > 0, path.Child("readinessProbe"))...)
}

func probe(p *v1.Probe, networked bool, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	var chosen []string
	if p.Exec != nil {
		chosen = append(chosen, "exec")
	}
	if p.GuestAgentPing != nil {
		chosen = append(chosen, "guestAgentPing")
	}
	if p.HTTPGet != nil {
		chosen = append(chosen, "httpGet")
	}
	if p.TCPSocket != nil {
		chosen = append(chosen, "tcpSocket")
	}
	errs := exactlyOne(path, chosen, "a probe has exactly one of exec, guestAgentPing, httpGet and tcpSocket")
	if p.Exec != nil && len(p.Exec.Command) == 0 {
		errs = append(errs, field.Required(path.Child("exec", "command"), "is run in the guest"))
	}
	if p.HTTPGet != nil {
		errs = append(errs, probedPort(p.HTTPGet.Port, networked, path.Child("httpGet", "port"))...)
	}
	if p.TCPSocket != nil {
		errs = append(errs, probedPort(p.TCPSocket.Port, networked, path.Child("tcpSocket", "port"))...)
	}
	for _, figure := range []struct {
		name  string
		value int32
	}{
		{"initialDelaySeconds", p.InitialDelaySeconds}, {"timeoutSeconds", p.TimeoutSeconds},
		{"periodSeconds", p.PeriodSeconds}, {"successThreshold", p.SuccessThreshold},
		{"failureThreshold", p.FailureThreshold},
	} {
		if figure.value < 0 {
			errs = append(errs, field.Invalid(path.Child(figure.name), figure.value, "must not be negative"))
		}
	}
	return errs
}

// The kubelet reaches the port through the pod's network.
func probedPort(port intstr.IntOrString, networked bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if !networked {
		errs = append(errs, field.Forbidden(path, "the guest has no network on which it could be probed; use exec or guestAgentPing"))
	}
	switch {
	case port.Type == intstr.Int:
		errs = append(errs, portNumber(port.IntValue(), path)...)
	case port.StrVal == "":
		errs = append(errs, field.Required(path, "names the port or its number"))
	}
	return errs
}

func portNumber(number int, path *field.Path) field.ErrorList {
	if number < 1 || number > 65535 {
		return field.ErrorList{field.Invalid(path, number, fmt.Sprintf("must be between %d and %d, inclusive", 1, 65535))}
	}
	return nil
}

// A pod has only one service account, so it must be the one whose token the guest gets.
func serviceAccount(spec *v1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	if spec.ServiceAccountName == "" {
		return nil
	}
	path = path.Child("serviceAccountName")
	errs := subdomain(spec.ServiceAccountName, path)
	for i := range spec.Volumes {
		if account := spec.Volumes[i].ServiceAccount; account != nil && account.ServiceAccountName != spec.ServiceAccountName {
			return append(errs, field.Invalid(path, spec.ServiceAccountName, fmt.Sprintf(
				"the guest gets the token of %s by volume %s: both must name the same service account", account.ServiceAccountName, spec.Volumes[i].Name)))
		}
	}
	return errs
}
