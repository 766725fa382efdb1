package redact

import (
	"encoding/json"
	"regexp"
	"strings"
)

// options are QEMU's options whose value has only Drydock's own words. A user's words are in others, such as -append.
var options = map[string]bool{
	"-machine": true, "-accel": true, "-name": true, "-sandbox": true, "-display": true, "-action": true, "-m": true, "-smp": true,
	"-global": true, "-rtc": true, "-uuid": true, "-boot": true, "-chardev": true, "-mon": true, "-vnc": true, "-tpmdev": true, "-kernel": true,
	"-initrd": true, "-incoming": true, "-msg": true, "-d": true, "-D": true,
}

// flags have no value.
var flags = map[string]bool{"-nodefaults": true, "-no-user-config": true, "-S": true}

// described are options with an object as value, of which some properties are allowed.
var described = map[string]bool{"-device": true, "-blockdev": true, "-netdev": true, "-object": true}

const properties = `driver id bus addr multifunction chassis read-only node-name disable-legacy filename file discard drive werror rerror chardev
	qom-type write-cache num-queues direct no-flush cache{direct no-flush} nr name size iothread index backing free-page-reporting bootindex type scsi-id
	script num_queues netdev mac lun ifname downscript channel romfile port device_id aio vhost tpmdev p3 p2 host_mtu vectors share-rw share rng queues
	prealloc-threads prealloc physical_block_size mq mem-path logical_block_size discard_granularity acpi-index rombar policy host-nodes slot
	memdev node requested-size block-size hotplug`

var property = regexp.MustCompile(`^[a-z0-9_-]+(=(on|off|[0-9]+|0x[0-9a-f]+))?$`)

// Arguments returns the allowed part of QEMU's arguments.
func (r *Redactor) Arguments(args []string) []string {
	rule := parse(properties, nil)
	out := make([]string, 0, len(args))
	for i := 0; i < len(args); i++ {
		option := args[i]
		if flags[option] {
			out = append(out, option)
			continue
		}
		if i+1 == len(args) || !optionName.MatchString(option) {
			out = append(out, Withheld)
			continue
		}
		i++
		out = append(out, option+" "+r.argument(&rule, option, args[i]))
	}
	return out
}

var optionName = regexp.MustCompile(`^-[a-z][a-z_-]{0,20}$`)

func (r *Redactor) argument(rule *rule, option, value string) string {
	switch {
	case option == "-cpu":
		parts := strings.Split(value, ",")
		for i, part := range parts {
			if !property.MatchString(part) && (i > 0 || !isValue(part)) {
				parts[i] = Withheld
			}
		}
		return r.Text(strings.Join(parts, ","))
	case described[option]:
		var of map[string]any
		if json.Unmarshal([]byte(value), &of) != nil {
			return Withheld
		}
		w := walk{text: func(text string) any { return r.Text(text) }}
		text, err := json.Marshal(w.value(rule, of))
		if err != nil {
			return Withheld
		}
		return string(text)
	case options[option] && len(value) <= maxText:
		return r.Text(value)
	}
	return Withheld
}
