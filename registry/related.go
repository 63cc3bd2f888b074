package registry

import "kdapl/dat"

// Related tells whether two providers can stand in for each other when an adapter or path fails
// (dat_registry_providers_related). The adapters of this module, and those that a program registers, do not: HAFalse.
// Of a library of C programs nobody knows: HAUnknown. It may read dat.conf.
//
// PROVIDER_NOT_FOUND (NAME_NOT_REGISTERED): one of the names is unknown.
func Related(a, b string) (dat.HARelationship, error) { return std.related(a, b) }

func (s *providers) related(a, b string) (dat.HARelationship, error) {
	all, _, err := s.all()
	answer := dat.HAFalse
	for _, name := range [...]string{a, b} {
		known := false
		for _, p := range all {
			if p.info.Name != name {
				continue
			}
			if known = true; !p.info.Openable {
				answer = dat.HAUnknown
			}
		}
		if !known {
			return dat.HAUnknown, fail("registry_providers_related", name, dat.ProviderNotFound, dat.NameNotRegistered, err, "no provider of that name is known")
		}
	}
	return answer, nil
}
