"""The words of the Korean-English grammar: tables, one row a word.

To add a word, add a row. A noun also goes into the columns of the verbs that take it, of the
adjectives that fit it and of the spots where it lies; a place into those of the verbs that happen
there. Columns of several words are one string, with spaces between the words.
"""

from enum import Enum
from typing import Literal, NamedTuple


class Tense(Enum):
    """When: before now, time and again, right now, later."""

    PAST = "past"
    HABIT = "habit"
    NOW = "now"
    FUTURE = "future"


class Somebody(NamedTuple):
    """A subject that is known, with 은/는."""

    korean: str
    english: str
    be: str  # am, are or is: what the English verb agrees with
    objective: str = ""  # its English form as an object; none: it is a subject only
    plural: bool = False
    speaker: bool = False  # one of those who speak: nobody asks about them
    kind: str = "adult"  # or "child" or "animal"


class Noun(NamedTuple):
    """A thing; `plural` holds what is not made with -s."""

    korean: str
    english: str
    counter: str = ""  # 사과 세 개
    article: Literal["a", "the", ""] = "a"  # "the": there is one of it in the scene
    plural: str = ""
    measure: str = ""  # what the counter is in English, of things without number: a cup of


class Adjective(NamedTuple):
    """Korean forms to build on (빨갛, 빨간, 빨갰) and the nouns that it fits.

    An adjective without a stem only stands before nouns.
    """

    stem: str
    attributive: str
    past: str
    english: str
    nouns: str
    people: bool = False  # 그는 친절하다: after a subject, only of persons who are known
    passing: bool = False  # a state that begins and ends: 나는 어제 바빴다


class Verb(NamedTuple):
    """Principal parts in both languages, and what the verb goes with.

    Korean: the stem, the stem of the past and the form before 것이다 (먹 먹었 먹을). English: base
    form, past and participle (eat ate eating). `number` tells whether its objects can be counted
    ("any"), come one by one ("one") or one for each person ("each": they wore hats).
    """

    korean: str
    english: str
    objects: str = ""
    places: str = ""  # where it happens, or where it leads
    tools: str = ""
    preposition: str = ""
    number: Literal["any", "one", "each"] = "any"
    who: str = "adult child"  # the kinds of subjects
    goes: str = ""  # with this particle where to
    state: bool = False  # liking: no event, and about kinds of things
    daily: bool = False  # may be done every day
    lasting: bool = False  # may be done for hours
    together: bool = False  # may be done with others
    receiver: bool = False  # needs somebody who gets it
    persons: bool = False  # known persons may be its objects, too


class Time(NamedTuple):
    """A time with the tense that it asks for. The empty time stands for none."""

    tense: Tense
    korean: str = ""
    english: str = ""
    frequency: bool = False  # stands before the verb, in both languages
    daily: bool = False
    affirmative: bool = False  # not with a negation: "not sometimes"


class Place(NamedTuple):
    """Where something happens: 공원에서; and where one goes: 공원에."""

    korean: str
    english: str
    to: str = ""


class Spot(NamedTuple):
    """Where things are (에), and which."""

    korean: str
    english: str
    things: str


KNOWN = (
    Somebody("나", "I", "am", "me", speaker=True),
    Somebody("너", "you", "are", "you"),
    Somebody("그", "he", "is", "him"),
    Somebody("그녀", "she", "is", "her"),
    Somebody("우리", "we", "are", "us", plural=True, speaker=True),
    Somebody("그들", "they", "are", "them", plural=True),
    Somebody("민수", "Minsu", "is", "Minsu"),
    Somebody("서연", "Seoyeon", "is", "Seoyeon"),
    Somebody("학생", "the student", "is"),
    Somebody("의사", "the doctor", "is"),
    Somebody("아이들", "the children", "are", "the children", plural=True, kind="child"),
    Somebody("고양이", "the cat", "is", kind="animal"),
    Somebody("개", "the dog", "is", kind="animal"),
)

# Nouns, by kind, for subjects that come in as new, with 이/가: a child is crying.
NEW = {
    "adult": ("남자", "여자", "학생", "의사", "간호사"),
    "child": ("아이",),
    "animal": ("고양이", "개", "토끼"),
}

RECEIVERS = ("친구", "아이", "학생", "간호사")  # who is given things
COMPANIONS = ("친구",)

NOUNS = {
    noun.korean: noun
    for noun in (
        Noun("사과", "apple", "개"),
        Noun("오렌지", "orange", "개"),
        Noun("바나나", "banana", "개"),
        Noun("딸기", "strawberry", "개"),
        Noun("토마토", "tomato", "개", plural="tomatoes"),
        Noun("감자", "potato", "개", plural="potatoes"),
        Noun("달걀", "egg", "개"),
        Noun("샌드위치", "sandwich", "개"),
        Noun("케이크", "cake", "개"),
        Noun("빵", "bread", "조각", "", measure="piece"),
        Noun("고기", "meat", "조각", "", measure="piece"),
        Noun("생선", "fish", "토막", "", measure="piece"),
        Noun("밥", "rice", "그릇", "", measure="bowl"),
        Noun("물", "water", "잔", "", measure="glass"),
        Noun("우유", "milk", "잔", "", measure="glass"),
        Noun("주스", "juice", "잔", "", measure="glass"),
        Noun("커피", "coffee", "잔", "", measure="cup"),
        Noun("차", "tea", "잔", "", measure="cup"),
        Noun("책", "book", "권"),
        Noun("소설", "novel", "권"),
        Noun("잡지", "magazine", "권"),
        Noun("시", "poem", "편"),
        Noun("이야기", "story", "편"),
        Noun("영화", "movie", "편"),
        Noun("드라마", "drama", "편"),
        Noun("편지", "letter", "통"),
        Noun("이메일", "email", "통"),
        Noun("노래", "song", "곡"),
        Noun("그림", "picture", "장"),
        Noun("사진", "photo", "장"),
        Noun("지도", "map", "장"),
        Noun("꽃", "flower", "송이"),
        Noun("장미", "rose", "송이"),
        Noun("나무", "tree", "그루"),
        Noun("고양이", "cat", "마리"),
        Noun("개", "dog", "마리"),
        Noun("토끼", "rabbit", "마리"),
        Noun("말", "horse", "마리"),
        Noun("새", "bird", "마리"),
        Noun("쥐", "mouse", "마리", plural="mice"),
        Noun("양", "sheep", "마리", plural="sheep"),
        Noun("친구", "friend", "명"),
        Noun("학생", "student", "명"),
        Noun("의사", "doctor", "명"),
        Noun("간호사", "nurse", "명"),
        Noun("가수", "singer", "명"),
        Noun("배우", "actor", "명"),
        Noun("아이", "child", "명", plural="children"),
        Noun("남자", "man", "명", plural="men"),
        Noun("여자", "woman", "명", plural="women"),
        Noun("컵", "cup", "개"),
        Noun("접시", "dish", "개"),
        Noun("칼", "knife", "자루", plural="knives"),
        Noun("의자", "chair", "개"),
        Noun("책상", "desk", "개"),
        Noun("상자", "box", "개"),
        Noun("가방", "bag", "개"),
        Noun("우산", "umbrella", "개"),
        Noun("시계", "watch", "개"),
        Noun("모자", "hat", "개"),
        Noun("마스크", "mask", "개"),
        Noun("헬멧", "helmet", "개"),
        Noun("코트", "coat", "벌"),
        Noun("셔츠", "shirt", "벌"),
        Noun("스웨터", "sweater", "벌"),
        Noun("유니폼", "uniform", "벌"),
        Noun("연필", "pencil", "자루"),
        Noun("펜", "pen", "자루"),
        Noun("공", "ball", "개"),
        Noun("인형", "doll", "개"),
        Noun("장난감", "toy", "개"),
        Noun("선물", "gift", "개"),
        Noun("자전거", "bicycle", "대"),
        Noun("오토바이", "motorcycle", "대"),
        Noun("자동차", "car", "대"),
        Noun("버스", "bus", "대"),
        Noun("택시", "taxi", "대"),
        Noun("기차", "train", "대"),
        Noun("컴퓨터", "computer", "대"),
        Noun("카메라", "camera", "대"),
        Noun("경기", "game"),
        Noun("텔레비전", "television", article=""),
        Noun("음악", "music", article=""),
        Noun("축구", "soccer", article=""),
        Noun("농구", "basketball", article=""),
        Noun("야구", "baseball", article=""),
        Noun("영어", "English", article=""),
        Noun("한국어", "Korean", article=""),
        Noun("수학", "math", article=""),
        Noun("역사", "history", article=""),
        Noun("과학", "science", article=""),
        Noun("신문", "newspaper", article="the"),
        Noun("뉴스", "news", article="the"),
        Noun("라디오", "radio", article="the"),
        Noun("지하철", "subway", article="the"),
        Noun("피아노", "piano", article="the"),
        Noun("기타", "guitar", article="the"),
        Noun("드럼", "drums", article="the"),
        Noun("문", "door", article="the"),
        Noun("창문", "window", article="the"),
        Noun("벽", "wall", article="the"),
        Noun("방", "room", article="the"),
        Noun("부엌", "kitchen", article="the"),
        Noun("교실", "classroom", article="the"),
        Noun("정원", "garden", article="the"),
        Noun("욕실", "bathroom", article="the"),
        Noun("사무실", "office", article="the"),
        Noun("도서관", "library", article="the"),
        Noun("박물관", "museum", article="the"),
        Noun("병원", "hospital", article="the"),
        Noun("공원", "park", article="the"),
    )
}

# fmt: off
ADJECTIVES = (
    Adjective("빨갛", "빨간", "빨갰", "red",
              "사과 토마토 딸기 꽃 장미 모자 스웨터 가방 우산 자동차 자전거 공 상자"),
    Adjective("파랗", "파란", "파랬", "blue",
              "모자 셔츠 스웨터 코트 가방 우산 자동차 자전거 공 새 의자 컵"),
    Adjective("노랗", "노란", "노랬", "yellow", "꽃 장미 모자 우산 공 셔츠 택시 새"),
    Adjective("하얗", "하얀", "하얬", "white", "고양이 개 토끼 말 꽃 장미 셔츠 코트 컵 접시"),
    Adjective("검", "검은", "검었", "black", "고양이 개 말 코트 가방 우산 자동차 모자"),
    Adjective("크", "큰", "컸", "big",
              "상자 가방 나무 개 사과 감자 케이크 방 책상 박물관 자동차 접시"),
    Adjective("작", "작은", "작았", "small",
              "상자 가방 고양이 토끼 새 컵 칼 방 카메라 달걀 시계 자동차"),
    Adjective("", "새", "", "new",
              "책 모자 가방 자전거 자동차 컴퓨터 카메라 시계 코트 셔츠 우산 의자"),
    Adjective("", "낡은", "", "old", "책 가방 자전거 자동차 컴퓨터 카메라 시계 코트 우산"),
    Adjective("비싸", "비싼", "비쌌", "expensive",
              "자동차 시계 가방 카메라 컴퓨터 코트 선물 자전거 장미"),
    Adjective("무겁", "무거운", "무거웠", "heavy", "상자 가방 책상 의자 책 문"),
    Adjective("길", "긴", "길었", "long", "편지 소설 시 영화 이야기 노래 코트"),
    Adjective("짧", "짧은", "짧았", "short", "편지 소설 시 영화 이야기 노래"),
    Adjective("재미있", "재미있는", "재미있었", "interesting",
              "책 소설 영화 이야기 드라마 경기 잡지"),
    Adjective("슬프", "슬픈", "슬펐", "sad", "영화 소설 시 노래 이야기 드라마"),
    Adjective("아름답", "아름다운", "아름다웠", "beautiful",
              "꽃 장미 나무 그림 사진 노래 정원 시 공원"),
    Adjective("귀엽", "귀여운", "귀여웠", "cute", "고양이 개 토끼 인형 아이 새"),
    Adjective("뜨겁", "뜨거운", "뜨거웠", "hot", "커피 차 밥 빵"),
    Adjective("차갑", "차가운", "차가웠", "cold", "물 우유 주스 커피"),
    Adjective("달콤하", "달콤한", "달콤했", "sweet", "사과 딸기 오렌지 바나나 케이크 주스"),
    Adjective("맛있", "맛있는", "맛있었", "delicious",
              "사과 빵 케이크 샌드위치 생선 고기 커피 감자"),
    Adjective("유용하", "유용한", "유용했", "useful", "책 지도 컴퓨터 카메라 잡지"),
    Adjective("조용하", "조용한", "조용했", "quiet", "도서관 박물관 공원 방 교실"),
    Adjective("친절하", "친절한", "친절했", "kind", "의사 간호사 남자 여자 친구 학생 배우",
              people=True),
    Adjective("정직하", "정직한", "정직했", "honest", "남자 여자 학생 친구 의사", people=True),
    Adjective("유명하", "유명한", "유명했", "famous", "가수 배우 의사 박물관", people=True),
    Adjective("바쁘", "바쁜", "바빴", "busy", "의사 간호사 배우 학생 가수",
              people=True, passing=True),
    Adjective("피곤하", "피곤한", "피곤했", "tired", "학생 간호사 의사 친구 아이",
              people=True, passing=True),
    Adjective("행복하", "행복한", "행복했", "happy", "아이 남자 여자", people=True, passing=True),
    Adjective("배고프", "배고픈", "배고팠", "hungry", "아이 학생 남자", people=True, passing=True),
)

VERBS = (
    Verb("먹 먹었 먹을", "eat ate eating",
         "사과 오렌지 바나나 딸기 토마토 감자 달걀 샌드위치 케이크 빵 고기 생선 밥",
         "집 식당 학교 공원", daily=True, together=True),
    Verb("마시 마셨 마실", "drink drank drinking", "물 우유 주스 커피 차", "집 카페 식당 사무실",
         daily=True, together=True),
    Verb("주문하 주문했 주문할", "order ordered ordering", "샌드위치 케이크 생선 주스 커피 차",
         "식당 카페 호텔"),
    Verb("요리하 요리했 요리할", "cook cooked cooking", "고기 생선 감자 달걀 토마토",
         "집 부엌 식당", daily=True, together=True),
    Verb("만들 만들었 만들", "make made making", "케이크 샌드위치 빵 의자 책상 상자 인형 장난감",
         "집 학교", together=True),
    Verb("자르 잘랐 자를", "cut cut cutting", "사과 오렌지 토마토 감자 케이크", "부엌", "칼"),
    Verb("씻 씻었 씻을", "wash washed washing", "사과 딸기 토마토 컵 접시 칼", "집 부엌 식당",
         daily=True),
    Verb("닦 닦았 닦을", "wipe wiped wiping", "창문 벽 책상 의자 접시 칼", tools="수건",
         daily=True),
    Verb("읽 읽었 읽을", "read read reading", "책 소설 잡지 시 이야기 편지 신문",
         "집 방 학교 도서관 카페 공원", daily=True, lasting=True),
    Verb("쓰 썼 쓸", "write wrote writing", "편지 소설 시 이야기", "집 방 도서관 카페 사무실",
         "연필 펜", daily=True),
    Verb("보내 보냈 보낼", "send sent sending", "편지 이메일 사진 선물 꽃 책", receiver=True),
    Verb("주 주었 줄", "give gave giving",
         "사과 책 꽃 장미 편지 선물 인형 장난감 공 연필 우산 우유 물", receiver=True),
    Verb("보여주 보여주었 보여줄", "show showed showing", "사진 그림 지도 편지 책 시계 고양이",
         receiver=True),
    Verb("보 보았 볼", "watch watched watching", "영화 드라마 경기 텔레비전 뉴스 축구 야구",
         "집 방 호텔 카페", daily=True, lasting=True, together=True),
    Verb("듣 들었 들을", "listen listened listening", "음악 노래 이야기 라디오 뉴스",
         "집 방 카페 공원", preposition="to", daily=True, lasting=True, together=True),
    Verb("그리 그렸 그릴", "draw drew drawing", "그림 지도 꽃 나무 고양이 말 양 새",
         "집 방 학교 공원", "연필 펜 붓", daily=True),
    Verb("사 샀 살", "buy bought buying",
         "사과 오렌지 딸기 빵 우유 책 잡지 꽃 장미 모자 마스크 헬멧 셔츠 스웨터 코트 유니폼 가방 "
         "우산 시계 자전거 카메라 선물", "시장 가게"),
    Verb("팔 팔았 팔", "sell sold selling",
         "사과 오렌지 감자 토마토 달걀 빵 고기 생선 꽃 모자 가방 시계 자전거 자동차",
         "시장 가게", who="adult", daily=True),
    Verb("고르 골랐 고를", "choose chose choosing", "책 모자 셔츠 스웨터 가방 시계 선물 인형",
         "시장 가게", together=True),
    Verb("입 입었 입을", "wear wore wearing", "셔츠 스웨터 코트 유니폼", "집 학교",
         number="each", daily=True),
    Verb("쓰 썼 쓸", "wear wore wearing", "모자 마스크 헬멧", number="each", daily=True),
    Verb("타 탔 탈", "ride rode riding", "자전거 오토바이 말", "바닷가", number="each",
         daily=True, lasting=True, together=True),
    Verb("타 탔 탈", "take took taking", "버스 택시 기차 지하철", "역", number="one",
         daily=True, together=True),
    Verb("기다리 기다렸 기다릴", "wait waited waiting", "친구 학생 버스 택시 기차", "역",
         preposition="for", number="one", lasting=True, persons=True),
    Verb("만나 만났 만날", "meet met meeting", "친구 학생 의사 간호사 가수 배우 아이 남자 여자",
         "학교 카페 식당 공원 시장 병원 역", persons=True),
    Verb("돕 도왔 도울", "help helped helping", "친구 학생 의사 간호사 아이 남자 여자",
         "학교 병원 공원 시장", persons=True),
    Verb("방문하 방문했 방문할", "visit visited visiting", "도서관 박물관 병원 공원",
         together=True),
    Verb("청소하 청소했 청소할", "clean cleaned cleaning", "방 부엌 교실 욕실 사무실 정원",
         daily=True, together=True),
    Verb("열 열었 열", "open opened opening", "문 창문 가방 상자 선물", daily=True),
    Verb("닫 닫았 닫을", "close closed closing", "문 창문 가방 상자", daily=True),
    Verb("칠하 칠했 칠할", "paint painted painting", "문 벽 의자 책상 상자", "집 학교", "붓",
         together=True),
    Verb("나르 날랐 나를", "carry carried carrying", "상자 책상 의자 가방", together=True),
    Verb("가져오 가져왔 가져올", "bring brought bringing", "책 우산 카메라 의자 선물 물 커피"),
    Verb("고치 고쳤 고칠", "fix fixed fixing",
         "자전거 오토바이 자동차 시계 컴퓨터 카메라 의자 문", who="adult"),
    Verb("빌리 빌렸 빌릴", "borrow borrowed borrowing",
         "책 소설 잡지 우산 자전거 카메라 연필 펜", "학교 도서관"),
    Verb("사용하 사용했 사용할", "use used using", "컴퓨터 카메라 칼 연필 펜 지도", "집",
         number="one", daily=True),
    Verb("공부하 공부했 공부할", "study studied studying", "영어 한국어 수학 역사 과학",
         "집 학교 대학교 도서관 카페", daily=True, lasting=True, together=True),
    Verb("가르치 가르쳤 가르칠", "teach taught teaching",
         "영어 한국어 수학 역사 과학 음악 피아노", "학교 대학교", who="adult",
         daily=True, lasting=True),
    Verb("배우 배웠 배울", "learn learned learning",
         "영어 한국어 수학 과학 음악 피아노 기타", "학교 대학교", daily=True, together=True),
    Verb("치 쳤 칠", "play played playing", "피아노 기타 드럼", "집 학교 카페",
         daily=True, lasting=True, together=True),
    Verb("하 했 할", "play played playing", "축구 농구 야구", "학교 공원",
         daily=True, lasting=True, together=True),
    Verb("잡 잡았 잡을", "catch caught catching", "공 쥐 새 토끼"),
    Verb("심 심었 심을", "plant planted planting", "나무 꽃 장미", "학교 공원 정원",
         together=True),
    Verb("좋아하 좋아했 좋아할", "like liked liking",
         "사과 오렌지 바나나 딸기 케이크 빵 고기 생선 우유 커피 차 책 소설 시 영화 노래 음악 꽃 "
         "장미 고양이 개 말 자동차 축구 농구 야구 영어 수학 역사 과학", state=True, persons=True),
    Verb("싫어하 싫어했 싫어할", "hate hated hating",
         "토마토 감자 달걀 바나나 생선 고기 우유 커피 영화 드라마 쥐 개 축구 야구 수학 역사 과학",
         state=True, persons=True),
    Verb("자 잤 잘", "sleep slept sleeping", "", "집 방 호텔", who="adult child animal",
         lasting=True),
    Verb("웃 웃었 웃을", "laugh laughed laughing", "", "방 교실 카페", together=True),
    Verb("울 울었 울", "cry cried crying", "", "방 교실 공원 병원"),
    Verb("달리 달렸 달릴", "run ran running", "", "공원 바닷가 정원", who="adult child animal",
         daily=True, lasting=True),
    Verb("걷 걸었 걸을", "walk walked walking", "", "공원 바닷가 정원",
         daily=True, lasting=True, together=True),
    Verb("놀 놀았 놀", "play played playing", "", "집 방 공원 정원 바닷가",
         who="adult child animal", daily=True, lasting=True, together=True),
    Verb("수영하 수영했 수영할", "swim swam swimming", "", "호텔 바닷가",
         daily=True, lasting=True, together=True),
    Verb("춤추 춤추었 춤출", "dance danced dancing", "", "집 학교 공원", lasting=True,
         together=True),
    Verb("노래하 노래했 노래할", "sing sang singing", "", "집 교실 공원 정원", daily=True,
         together=True),
    Verb("일하 일했 일할", "work worked working", "", "사무실 병원 식당 가게 시장 호텔 도서관",
         who="adult", daily=True, lasting=True, together=True),
    Verb("쉬 쉬었 쉴", "rest rested resting", "", "집 방 공원 카페 호텔", daily=True,
         lasting=True),
    Verb("운동하 운동했 운동할", "exercise exercised exercising", "", "집 학교 공원", daily=True,
         lasting=True, together=True),
    Verb("가 갔 갈", "go went going", "",
         "집 학교 대학교 도서관 박물관 공원 시장 가게 병원 카페 식당 역 호텔 사무실 바닷가",
         "버스 택시 기차 지하철 자전거", goes="에", daily=True, together=True),
    Verb("오 왔 올", "come came coming", "",
         "집 학교 대학교 도서관 박물관 공원 시장 병원 카페 식당 역 호텔 바닷가",
         "버스 택시 기차 지하철 자전거", goes="에", together=True),
    Verb("돌아가 돌아갔 돌아갈", "return returned returning", "",
         "집 학교 대학교 도서관 병원 호텔 사무실 역", goes="으로/로", together=True),
)
# fmt: on

TIMES = (
    Time(Tense.PAST),
    Time(Tense.PAST, "어제", "yesterday"),
    Time(Tense.PAST, "지난주에", "last week"),
    Time(Tense.PAST, "오늘 아침에", "this morning"),
    Time(Tense.PAST, "어젯밤에", "last night"),
    Time(Tense.HABIT),
    Time(Tense.HABIT, "자주", "often", frequency=True),
    Time(Tense.HABIT, "가끔", "sometimes", frequency=True, affirmative=True),
    Time(Tense.HABIT, "매일", "every day", daily=True, affirmative=True),
    Time(Tense.HABIT, "매일 아침", "every morning", daily=True, affirmative=True),
    Time(Tense.HABIT, "주말마다", "every weekend", affirmative=True),
    Time(Tense.NOW),
    Time(Tense.NOW, "지금", "now"),
    Time(Tense.FUTURE),
    Time(Tense.FUTURE, "내일", "tomorrow"),
    Time(Tense.FUTURE, "다음 주에", "next week"),
    Time(Tense.FUTURE, "오늘 밤에", "tonight"),
)

DURATIONS = {
    "삼십 분 동안": "for thirty minutes",
    "한 시간 동안": "for an hour",
    "두 시간 동안": "for two hours",
    "세 시간 동안": "for three hours",
}

PLACES = {
    place.korean: place
    for place in (
        Place("집", "at home", "home"),
        Place("학교", "at school", "to school"),
        Place("대학교", "at the university", "to the university"),
        Place("도서관", "at the library", "to the library"),
        Place("박물관", "at the museum", "to the museum"),
        Place("공원", "in the park", "to the park"),
        Place("시장", "at the market", "to the market"),
        Place("가게", "at the store", "to the store"),
        Place("병원", "at the hospital", "to the hospital"),
        Place("카페", "at the cafe", "to the cafe"),
        Place("식당", "at the restaurant", "to the restaurant"),
        Place("역", "at the station", "to the station"),
        Place("호텔", "at the hotel", "to the hotel"),
        Place("사무실", "at the office", "to the office"),
        Place("바닷가", "at the beach", "to the beach"),
        Place("방", "in the room"),
        Place("부엌", "in the kitchen"),
        Place("교실", "in the classroom"),
        Place("정원", "in the garden"),
    )
}

SPOTS = (
    Spot("책상 위", "on the desk", "책 잡지 연필 펜 컴퓨터 카메라 편지 사진 컵 시계"),
    Spot("식탁 위", "on the table", "사과 바나나 케이크 빵 커피 우유 컵 접시 꽃"),
    Spot("냉장고 안", "in the refrigerator", "우유 물 주스 달걀 고기 생선 토마토 딸기 케이크"),
    Spot("가방 안", "in the bag", "책 우산 연필 카메라 모자 편지 지도"),
    Spot("상자 안", "in the box", "인형 장난감 공 책 모자 선물 고양이"),
    Spot("방", "in the room", "고양이 의자 책상 컴퓨터 가방"),
    Spot("부엌", "in the kitchen", "의자 고양이 쥐 칼 접시"),
    Spot("교실", "in the classroom", "학생 아이 의자 책상"),
    Spot("정원", "in the garden", "나무 꽃 장미 토끼 새 고양이"),
    Spot("공원", "in the park", "나무 꽃 아이 개 말 자전거 새"),
)

TOOLS = {
    "연필": "with a pencil",
    "펜": "with a pen",
    "붓": "with a brush",
    "칼": "with a knife",
    "수건": "with a towel",
    "버스": "by bus",
    "택시": "by taxi",
    "기차": "by train",
    "지하철": "by subway",
    "자전거": "by bicycle",
}

NUMERALS = {"한": "one", "두": "two", "세": "three", "네": "four", "다섯": "five"}

DETERMINERS = {"이": "this", "그": "the"}
