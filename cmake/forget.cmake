# ferry_forget_removed(VARIABLE [FILE]): before a find_... Forgets where an earlier run of CMake has
# found something that was removed since; FILE is the one that a folder has to have. Without it the
# build would use the old place. Things that were missing are looked for again in any case. A value
# of this run's command line without a type stays.
function(ferry_forget_removed variable)
    get_property(type CACHE ${variable} PROPERTY TYPE)
    set(place "$CACHE{${variable}}")
    if(ARGN)
        string(APPEND place "/${ARGN}")
    endif()
    if(type MATCHES "PATH" AND NOT EXISTS "${place}") # other types: given by the command line
        unset(${variable} CACHE)
    endif()
endfunction()

# ferry_find(path|library|program VARIABLE NAME [OPTION...]): find_KIND after
# ferry_forget_removed.
function(ferry_find kind variable name)
    if(kind STREQUAL "path")
        ferry_forget_removed(${variable} ${name})
    else()
        ferry_forget_removed(${variable})
    endif()
    cmake_language(CALL find_${kind} ${variable} ${name} ${ARGN})
endfunction()
